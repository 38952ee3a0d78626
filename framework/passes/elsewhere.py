"""What PyTorch and Keras call the arguments of optimizers and the schedules, for messages."""

ARGUMENTS = {
    "lr": "the first argument, learning_rate",
    "eps": "epsilon",
    "betas": "beta1 and beta2",
    "nesterov": "the type 'nesterov'",
    "params": "parameters",
    "decoupled_weight_decay": "the type 'adamw'",
    "optimizer": "the second argument, type",
    "clipnorm": "clip_norm",
    "global_clipnorm": "clip_norm",
    "max_norm": "clip_norm",
    "clipvalue": "clip_value",
    "scheduler": "schedule",
    "lr_scheduler": "schedule",
    "decay": "weight_decay, or a schedule for a rate that falls",
}
"""How other toolkits call arguments, and what they are here."""

SCHEDULES = {
    "steplr": "step_decay",
    "multisteplr": "piecewise",
    "piecewiseconstantdecay": "piecewise",
    "exponentiallr": "exponential_decay",
    "cosineannealinglr": "cosine",
    "cosinedecay": "cosine",
    "linearlr": "linear_warmup",
    "polynomiallr": "polynomial_decay",
}
"""Schedules of PyTorch and Keras, in lower case -> ours."""

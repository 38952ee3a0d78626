"""Training and evaluation as CNTK's SGD does them.

trainer = Trainer(net, SgdOptions.of(config.section("SGD")), reader, model_path="m.dnn")
trainer.train()

Gives `Trainer` and `Evaluator` to actions. May import models, lower, readers and run.
"""

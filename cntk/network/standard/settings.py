"""The settings of CNTK's SimpleNetworkBuilder. Source: SimpleNetworkBuilder.h."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....framework.base.errors import FormatError
from ...config.parameters import ConfigParameters

RNN_TYPES = tuple("SIMPLENET SIMPLERNN LSTM CLASSLM LBLM NPLM CLASSLSTM NCELSTM CLSTM".split())


@dataclass
class SimpleNetworkSettings:
    """The parameters of a `SimpleNetworkBuilder` section, by their names there in Python's case.

    Arrays repeat their last value. `rnn_type` is one of SIMPLENET, SIMPLERNN, LSTM, CLASSLM, LBLM,
    NPLM, CLASSLSTM, NCELSTM, CLSTM.
    """

    layer_sizes: Sequence[int]
    training_criterion: str
    eval_criterion: str
    rnn_type: str = "SIMPLENET"
    layer_types: Sequence[str] = ("Sigmoid",)
    apply_mean_var_norm: bool = False
    need_prior: bool = False
    add_dropout_nodes: bool = False
    uniform_init: bool = True
    init_value_scale: float = 1.0
    recurrent_layers: Sequence[int] = ()
    default_hidden_activity: float = 0.1
    ma_order: int = 0
    lookup_table_order: int = 0
    forget_gate_init: float = -1.0
    input_gate_init: float = -1.0
    output_gate_init: float = -1.0
    const_forget_gate: bool = False
    const_input_gate: bool = False
    const_output_gate: bool = False
    sparse_input: bool = False
    direct_connect: Sequence[int] = ()
    vocab_size: int = -1
    class_count: int = -1
    noise_count: int = -1
    aux_feature_dim: int = 20
    precision: str = "float"

    @classmethod
    def from_config(cls, config: ConfigParameters) -> SimpleNetworkSettings:
        """The parameters of a section of an old config.

        Raises:
            FormatError: one is missing, or a value is of the wrong type.
        """
        kinds = config.array("rnnType", "SIMPLENET").strings()
        known = [kind for kind in RNN_TYPES if kind in kinds]
        if not known:
            raise FormatError(f"rnnType: {':'.join(kinds)!r} is none of {', '.join(RNN_TYPES)}")
        return cls(
            layer_sizes=list(config.array("layerSizes", "100").ints()),
            training_criterion=config.string("trainingCriterion"),
            eval_criterion=config.string("evalCriterion"),
            rnn_type=known[0],
            layer_types=list(config.array("layerTypes", "Sigmoid").strings()),
            apply_mean_var_norm=config.bool("applyMeanVarNorm", False),
            need_prior=config.bool("needPrior", False),
            add_dropout_nodes=config.bool("addDropoutNodes", False),
            uniform_init=config.bool("uniformInit", True),
            init_value_scale=config.float("initValueScale", 1.0),
            recurrent_layers=list(config.array("recurrentLayer", "").ints()),
            default_hidden_activity=config.float("defaultHiddenActivity", 0.1),
            ma_order=config.int("maOrder", 0),
            lookup_table_order=config.int("lookupTableOrder", 0),
            forget_gate_init=config.float("forgetGateInitVal", -1.0),
            input_gate_init=config.float("inputGateInitVal", -1.0),
            output_gate_init=config.float("outputGateInitVal", -1.0),
            const_forget_gate=config.bool("constForgetGateValue", False),
            const_input_gate=config.bool("constInputGateValue", False),
            const_output_gate=config.bool("constOutputGateValue", False),
            sparse_input=config.bool("sparseinput", False),
            direct_connect=list(config.array("directConnect", "").ints()),
            vocab_size=config.int("vocabSize", -1),
            class_count=config.int("nbrClass", -1),
            noise_count=config.int("noise_number", -1),
            aux_feature_dim=config.int("auxfeatdim", 20),
            precision=config.string("precision", "float"),
        )

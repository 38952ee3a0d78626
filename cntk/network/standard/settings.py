"""The settings of CNTK's SimpleNetworkBuilder. Source: SimpleNetworkBuilder.h."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....framework.base.errors import FormatError
from ....framework.base.options.option_fields import option
from ...config.parameters import ConfigParameters

RNN_TYPES = tuple("SIMPLENET SIMPLERNN LSTM CLASSLM LBLM NPLM CLASSLSTM NCELSTM CLSTM CRF".split())


@dataclass
class SimpleNetworkSettings:
    """The parameters of a `SimpleNetworkBuilder` section, by their names there in Python's case.

    Arrays repeat their last value. `rnn_type` is one of SIMPLENET, SIMPLERNN, LSTM, CLASSLM, LBLM,
    NPLM, CLASSLSTM, NCELSTM, CLSTM, CRF.
    """

    layer_sizes: Sequence[int]
    training_criterion: str = option(name="trainingCriterion")
    eval_criterion: str = option(name="evalCriterion")
    rnn_type: str = "SIMPLENET"
    layer_types: Sequence[str] = ("Sigmoid",)
    apply_mean_var_norm: bool = option(False, name="applyMeanVarNorm")
    need_prior: bool = option(False, name="needPrior")
    add_dropout_nodes: bool = option(False, name="addDropoutNodes")
    uniform_init: bool = option(True, name="uniformInit")
    init_value_scale: float = option(1.0, name="initValueScale")
    recurrent_layers: Sequence[int] = ()
    default_hidden_activity: float = option(0.1, name="defaultHiddenActivity")
    ma_order: int = option(0, name="maOrder")
    lookup_table_order: int = option(0, name="lookupTableOrder")
    forget_gate_init: float = option(-1.0, name="forgetGateInitVal")
    input_gate_init: float = option(-1.0, name="inputGateInitVal")
    output_gate_init: float = option(-1.0, name="outputGateInitVal")
    const_forget_gate: bool = option(False, name="constForgetGateValue")
    const_input_gate: bool = option(False, name="constInputGateValue")
    const_output_gate: bool = option(False, name="constOutputGateValue")
    sparse_input: bool = option(False, name="sparseinput")
    direct_connect: Sequence[int] = ()
    vocab_size: int = option(-1, name="vocabSize")
    class_count: int = option(-1, name="nbrClass")
    noise_count: int = option(-1, name="noise_number")
    aux_feature_dim: int = option(20, name="auxfeatdim")
    precision: str = option("float", name="precision")

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
            **config.options(cls),
            layer_sizes=list(config.array("layerSizes", "100").ints()),
            rnn_type=known[0],
            layer_types=list(config.array("layerTypes", "Sigmoid").strings()),
            recurrent_layers=list(config.array("recurrentLayer", "").ints()),
            direct_connect=list(config.array("directConnect", "").ints()),
        )

"""No function calls itself but those of this table, whose depth is bounded by what is told there.

Everything else walks over nets, networks, expressions and trees with a list of what is still to be
done: a chain of 100,000 operators must not end in a RecursionError. Chains run in test_deep_nets.py
and test_deep_models.py. A function that is registered in a table and called through it is not seen.
"""

from __future__ import annotations

from pathlib import Path

from recursion import recursive_functions

ROOT = Path(__file__).parents[1]
LEFT_OUT = "tests benchmarks docs examples devtools testing build.py setup.py build".split()

BOUNDED = {
    "calls of calls, and lists in arguments of NumPy: as deep as kernels write them": """
        framework/fusion/team.py: parts_of
        framework/runtime/other_shapes/traced_calls.py: NumpyCall._argument _same_argument
    """,
    "language models of language models: two or three deep, as programs nest them": """
        speech/language_model/automaton.py: Automaton.arcs Backoff._shorter Backoff.arc
            Backoff.final Both.arc Both.final Scaled.arc Scaled.final
    """,
    "nets inside nets, or graphs inside nodes: the limit nesting, which framework/ir/nesting.py "
    "holds nets to that are verified, printed or saved, and which ONNX's reader checks; protobuf "
    "reads 100 messages inside one another, some three of which are one net": """
        bridges/onnx/importing/graph.py: _Reader._call _Reader._nodes _Reader._value
            _Reader.graph _renamed renamed
        bridges/onnx/importing/invariants.py: without_invariants
        bridges/onnx/importing/row_writes.py: choose_rows
        bridges/onnx/importing/shown.py: _net
        bridges/onnx/importing/stage.py: Lowering._as_scan Lowering._both Lowering._choose
            Lowering._control Lowering._inline Lowering._lower_all Lowering._lower_one
        bridges/view/op_nets.py: _Reader._value
        framework/draw/pictures.py: _rows
        framework/editing/difference.py: _op_changes _same difference
        framework/files/checkpoint.py: _bare
        framework/ir/messages.py: _encode _fill_net _fill_op _fill_step _fill_var
            _lenient_value _read_step decode_attr from_message op_from_message to_message
            var_from_message
        framework/ir/operation.py: expand_op
        framework/ir/printer.py: _net_lines
        framework/ir/sources.py: _sourced
        framework/loops/inner_net.py: InnerNet._change InnerNet.add_backward_ops
            InnerNet.add_op InnerNet.add_optimizer_ops InnerNet.infer_shape
            InnerNet.operators InnerNet.predicts InnerNet.run InnerNet.version
        framework/passes/rewriter.py: _mentioned outside_names
        framework/passes/precision/to_dtype.py: _converted _nets _op _settled _var
        framework/passes/verify/values.py: _all_names
        framework/passes/verify/world.py: world_types
        framework/runtime/initialize.py: _nets
        framework/runtime/plain_net.py: PlainNet.add_backward_ops PlainNet.add_optimizer_ops
            PlainNet.copy PlainNet.externals PlainNet.run
        python_api/builder/net_builder.py: NetBuilder._net_and_gradients NetBuilder.add_op
            NetBuilder.append NetBuilder.append_desc NetBuilder.desc NetBuilder.gradients
            NetBuilder.last_forward_op NetBuilder.name NetBuilder.names_of NetBuilder.net
            NetBuilder.op_list
        python_api/to_python/cntk_to_python.py: _all_ops
        python_api/to_python/net_to_python.py: Writer._block Writer._recurrent _reads
        python_api/to_python/trim_columns.py: _Trim._take _Trim._take_loop _shapes
    """,
    "descriptors: _MAX_DEPTH of nnet3/language/descriptor_parse.py, _DEEPEST of "
    "nnet3/xconfig/inputs.py": """
        bridges/nnet3_rows/walk.py: RowsWalk._failover RowsWalk._optional RowsWalk.part
        bridges/nnet3_rows/plan.py: Plan._demand_part Plan.reach_of
        bridges/nnet3_rows/loops.py: _lags.begins _terms
        bridges/nnet3_rows/steps.py: LoopStep._begun LoopStep._part LoopStep._term
        nnet3/draw/short_form.py: _forwarding _sources_at_t _sum
        nnet3/graph/loops.py: _terms
        nnet3/graph/topology.py: _takes_all linear_leaf
        nnet3/inference/looped.py: _rounded
        nnet3/language/descriptor.py: BinarySumDescriptor.combine
            BinarySumDescriptor.constant BinarySumDescriptor.dim BinarySumDescriptor.leaves
            BinarySumDescriptor.needs_all OffsetForwardingDescriptor.map_to_input
            OffsetForwardingDescriptor.modulus OffsetForwardingDescriptor.scales
            OptionalSumDescriptor.combine OptionalSumDescriptor.constant
            OptionalSumDescriptor.dim OptionalSumDescriptor.leaves
            ReplaceIndexForwardingDescriptor.map_to_input
            ReplaceIndexForwardingDescriptor.scales
            RoundingForwardingDescriptor.map_to_input RoundingForwardingDescriptor.scales
            SumDescriptor.modulus SumDescriptor.scales
            SwitchingForwardingDescriptor.map_to_input SwitchingForwardingDescriptor.modulus
            SwitchingForwardingDescriptor.scales _renamed
        nnet3/language/descriptor_parse.py: _Parser.descriptor _append_terms _normalized
            _to_forwarding _to_sum
        nnet3/xconfig/inputs.py: _Parser._form _Parser.descriptor
        bridges/nnet3_cntk/nnet3_walk.py: _summands
    """,
    "structs in structs of native/declarations.py, a table that people write": """
        framework/fusion/compiled/arguments.py: _c_struct _c_type
    """,
    "scalar expressions: _DEEPEST and _HIGHEST of framework/fusion/scalars/expression.py": """
        framework/fusion/scalars/array_calls.py: _Writer._binary _Writer._choose _Writer._write
            _Writer.number _Writer.write _plan
        framework/fusion/scalars/array_idioms.py: _is_product _match folded rewritten
        framework/fusion/scalars/expression.py: _Reader.binary _Reader.choose _Reader.primary
            _Reader.unary
    """,
    "BrainScript: MAX_NESTING, MAX_DEPTH and MAX_SHOWN of cntk/brainscript/language/depth.py, "
    "which also makes room for so many calls": """
        cntk/brainscript/compiler.py: _access.access _if.choose
        cntk/brainscript/edits.py: change_members changed changed_thunk changed_thunk.code
            changed_value
        cntk/brainscript/failures.py: Failure.error
        cntk/brainscript/functions.py: _Shown.text
        cntk/brainscript/language/parser.py: _Parser.arguments _Parser.array
            _Parser.array_literal _Parser.change _Parser.expression _Parser.keyword
            _Parser.member _Parser.members _Parser.operand _Parser.postfix
        cntk/brainscript/language/printer.py: _array _head _member _named _operand
            _parameters _record _text _with_strength
        cntk/brainscript/language/syntax.py: _in_copy _shown
        cntk/brainscript/nodes.py: plain
        cntk/brainscript/redesign/sections.py: _settings
        cntk/brainscript/signatures.py: _functions _signatures
        cntk/brainscript/values.py: Composition.call Overload.call Partial.call Record.find
            Record.get
        cntk/programs/library.py: _collect _operation _parameters
    """,
    "NDL: DEEPEST of cntk/ndl/parse.py and macros.py, DEEPEST_CALL of numbering.py, LONGEST "
    "of scope.py": """
        cntk/ndl/evaluate.py: Evaluator._call_macro Evaluator._evaluate Evaluator._evaluated
            Evaluator._instantiate
        cntk/ndl/macros.py: Macros.define
        cntk/ndl/numbering.py: Numbering._body Numbering._define Numbering._enter
            Numbering._expression Numbering._parameters
        cntk/ndl/parse.py: _call _expression _macro _parameter _parameters _script
        cntk/ndl/scope.py: plain
    """,
    "configs: brackets inside one another in cntk/config/scan.py, DEEPEST of variables.py and "
    "files.py": """
        cntk/actions/checks/scripts.py: parse_sections
        cntk/actions/common.py: _values
        cntk/config/files.py: Reader.include
        cntk/config/parameters.py: ConfigParameters._value ConfigParameters.array
            ConfigParameters.bool ConfigParameters.find ConfigParameters.float
            ConfigParameters.int ConfigParameters.size ConfigParameters.string
        cntk/config/section.py: Section.missing
        cntk/config/variables.py: _Resolver.line _Resolver.text _Resolver.value
        cntk/readers/base/sections.py: named_files
        cntk/readers/catalog.py: _multi_reader reader_opening
    """,
    "what is read from files: a count of levels in the same module, checked before the next "
    "one": """
        bridges/onnx/cells.py: _Reader._product _Reader.linear
        cntk/models/v2.py: _decode _dictionary
        cntk/readers/base/section_file.py: _Sections._inside _Sections._section _place
        kaldi/files/context_dependency.py: ContextDependency.pairs _read_map answers
    """,
    "lists, arrays and records as values: JSON by the limit nesting, arrays by their 64 axes, "
    "settings and states by the classes that declare them": """
        bridges/torch/formatting.py: wrapped
        bridges/torch/importing/calls.py: Aten.of_reals.referred Aten.resolved
        bridges/torch/importing/kinds/pairs.py: _by_halves.half
        bridges/torch/importing/translate.py: Reader._template _labels
        bridges/view/texts.py: attribute_text
        cntk/programs/nodes.py: _shown
        framework/base/untrusted/records.py: _one_of record typed
        nnet3/cache/structure.py: _without_floats
        nnet3/programs/listing.py: _example_io describe
        python_api/to_python/python_text.py: flat literal wrapped
        python_api/train/measuring.py: _plain _restored
    """,
    "an object that asks a few others that it holds, which are of another class of its "
    "family: a composite component its parts, a reader its deserializer, a loop's emitter "
    "that around it": """
        bridges/onnx/export/emission.py: Values.array_of Values.name_of
            Values.spec_of
        bridges/onnx/files/graph.py: Graph.input Graph.node Graph.output Graph.root
        bridges/onnx/from_nnet3/folded.py: FoldedWalk._applied why_not
        bridges/torch/nnet3/layers.py: why_not
        cntk/lower/emitter.py: Emitter.append Emitter.columns Emitter.sequences
        cntk/lower/loops.py: StepEmitter.shaped StepEmitter.state StepEmitter.value
        cntk/readers/base/bundler.py: Bundler.close Bundler.read_chunk Bundler.start_epoch
            SingleSamples.read_chunk
        cntk/readers/base/data.py: Deserializer.read_chunks Deserializer.samples
        cntk/readers/base/pack.py: SequencePacker.close
        cntk/readers/binary/format.py: BinaryFile.close
        cntk/readers/foreign.py: ForeignDeserializer.close ForeignDeserializer.read_chunk
            ForeignDeserializer.start_epoch
        cntk/readers/htk/lattices.py: LatticePacker.close LatticePacker.parallel
            LatticePacker.read LatticePacker.records LatticePacker.start_epoch
        cntk/readers/image/reader.py: Images.read_chunk
        cntk/readers/multi.py: MultiReader.close MultiReader.data_end MultiReader.get_data
            MultiReader.label_mapping MultiReader.sentence_ends
            MultiReader.set_label_mapping MultiReader.take_share MultiReader.use_network
        cntk/readers/text/format.py: TextFormat.close
        cntk/run/runtime.py: BoundNet.feed BoundNet.run CntkNet._make
        framework/base/python/bounded_cache.py: BoundedCache.get BoundedCache.values
        framework/base/untrusted/roots.py: Confinement.check Confinement.check_open
        framework/parallel/dry.py: DryCommunicator.check
        framework/parallel/groups.py: Group._take Group.check Group.close Group.fail
            Group.receive Group.send
        framework/parallel/mpi.py: MpiCommunicator._start_from_device
            MpiCommunicator.start_all_reduce
        framework/parallel/nccl.py: NcclCommunicator.all_gather NcclCommunicator.broadcast
        framework/parallel/nccl.py: NcclCommunicator.share
            NcclCommunicator.check NcclCommunicator.close NcclCommunicator.exchange
            NcclCommunicator.fail NcclCommunicator.start_all_reduce
            NcclCommunicator.start_reduce_scatter NcclCommunicator.send
            NcclCommunicator.receive NcclCommunicator._channel
        nnet3/cache/structure.py: _facts
        nnet3/components/base/component.py: Component.is_updatable
        nnet3/components/base/lowering.py: Recipe.key _chain backward_ops
        nnet3/components/composite.py: CompositeComponent._updatable CompositeComponent.info
            CompositeComponent.init_from_config CompositeComponent.input_dim
            CompositeComponent.num_parameters CompositeComponent.output_dim
            CompositeComponent.properties CompositeComponent.set_learning_rate
            CompositeComponent.unvectorize CompositeComponent.vectorize
            CompositeComponent.zero_stats
        nnet3/components/dropout.py: DropoutMaskComponent.input_dim
        nnet3/components/normalize.py: NormalizeComponent.output_dim
        nnet3/components/statistics.py: StatisticsExtractionComponent.output_dim
            StatisticsPoolingComponent.output_dim
        nnet3/index/indexes.py: Columns._column Columns.base Columns.images Columns.indexes
            Columns.n Columns.t Columns.x
        nnet3/index/sequences.py: ExpandedIndexes.images ExpandedIndexes.indexes
        nnet3/network/dialect.py: _add_component _arrays _component
        python_api/formats/config_text.py: _settings
        speech/fst/composition.py: Composition._matches Composition._matches_of_words
            Composition._pairs Composition._passed Composition._shorter Composition._silent
            Composition._waiting Composition.arcs Composition.start
    """,
    "a call with other arguments, for which it is not repeated: a name that is spelled "
    "otherwise, a part that has no parts, a length that is left; or a delegate of another "
    "class of the same name": """
        bridges/onnx/importing/model.py: refused
        cntk/brainscript/values.py: Array.element Counted.items Joined._take Joined.items
        cntk/ndl/scope.py: Scope.find
        cntk/network/graph.py: NodeGraph.add NodeGraph.add_to_group
        cntk/network/kinds/linear.py: _match_legacy product
        cntk/programs/nodes.py: _codes _named
        framework/base/context.py: OpContext.generator
        framework/base/cpu/threads.py: _start follow_by_numpy most_threads
        framework/base/dtypes.py: to_dtype
        framework/base/python/bounded_cache.py: BoundedCache._charge BoundedCache._use
            BoundedCache.add BoundedCache.items
        framework/base/scope.py: Scope.find Scope.get Scope.numpy
            Scope.sequences
        framework/fusion/compiled/native.py: _grants_tiles _processors load
        framework/ir/kernel_args.py: KernelArgs.get
        framework/runtime/binding.py: _bind_apart bind_operator
        framework/runtime/executor.py: Frame.nbytes
        nnet3/chain/graphs/phone_lm.py: _Estimation._state_of
        nnet3/compiler/locations.py: split_locations
        nnet3/graph/graph.py: _present
        nnet3/inference/chunk_lengths.py: _best
        operators/backends/bfloat16/bf16_products.py: _in_blocks by_terms task
    """,
}
"""What bounds the depth -> the functions, by file."""


def allowed() -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for listed in BOUNDED.values():
        file = ""
        for word in listed.split():
            if word.endswith(":"):
                file = word[:-1]
            else:
                found.add((file, word))
    return found


def test_functions_that_call_themselves_are_bounded():
    found = {place for group in recursive_functions(ROOT, LEFT_OUT) for place in group}
    new = sorted(found - allowed())
    assert not new, f"these call themselves: walk with a list, or tell in BOUNDED why not: {new}"
    gone = sorted(allowed() - found)
    assert not gone, f"these call themselves no longer: take them out of BOUNDED: {gone}"


def test_the_finder(tmp_path):
    (tmp_path / "one.py").write_text(
        """
def walk(tree):
    return [walk(part) for part in tree]

def first(n):
    return second(n)

def second(n):
    return first(n - 1) if n else 0

def plain(n):
    def walk():
        return n
    return walk()

class Leaf:
    def size(self) -> int:
        return 1

class Pair(Leaf):
    left: Leaf
    name: str

    def size(self):
        return self.left.size() + 1

    def label(self):
        return self.name.label()

    def down(self, other: Leaf):
        return other.down(self)

    def super_is_another(self):
        return super().super_is_another()

    def turn(self):
        return [self._turned() for _ in "ab"]

    def _turned(self):
        return self.turn()
"""
    )
    found = {name for group in recursive_functions(tmp_path, ()) for _, name in group}
    wanted = "walk first second Leaf.size Pair.size Pair.down Pair.turn Pair._turned"
    assert found == {*wanted.split()} - {"Leaf.size"}

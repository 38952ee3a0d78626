"""The arguments of all native functions; arguments.py says how to read and write this table."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from .arguments import (
    ADDRESS,
    COUNT,
    FLAG,
    MAYBE,
    NUMBER,
    REAL,
    RESULT,
    SOME,
    STEP,
    Inner,
    Rest,
    Struct,
    Structs,
    Whole,
    reads,
    step_of,
    updates,
    writes,
)
from .constants import OF_INT64, ONE, Asking, BadLattice, Undetermined

_PLANES: dict[str, Any] = dict.fromkeys(("height", "width", "high", "wide"), COUNT)
_PLANES |= dict.fromkeys(("kernel_down", "kernel_right", "stride_down", "stride_right"), SOME)
_PLANES |= dict.fromkeys(("before_down", "before_right"), COUNT)
"""Planes, those of the result, and windows: their sizes, steps, and where the first begin."""
_DILATED: dict[str, Any] = dict.fromkeys(("dilation_down", "dilation_right"), SOME)
_MADE: dict[str, Any] = dict.fromkeys(
    ("start", "states", "count", "final", "begin", "arcs"), RESULT
)
"""A transducer: its sizes, and where its arrays are, which `memory_free` frees."""

RECORDS: dict[str, dict[str, str]] = {
    "Arc": {"ilabel": "int32", "olabel": "int32", "weight": "float32", "nextstate": "int32"},
    "Token": {
        "cost": "float32",
        "extra": "float32",
        "back": "int32",
        "ilabel": "int32",
        "olabel": "int32",
        "graph": "float32",
        "acoustic": "float32",
    },
    "Link": {
        "from": "int32",
        "to": "int32",
        "ilabel": "int32",
        "olabel": "int32",
        "graph": "float32",
        "acoustic": "float32",
    },
    # An arc of a lattice, or an end, whose target is its state; how many ids it has.
    "LatticeArc": {
        **{"label": "int32", "target": "int32", "length": "int32"},
        **{"graph": "float32", "acoustic": "float32"},
    },
    # A token of a path: its number among those of the frame before by its name, -1 if the token
    # before it is of the same frame; what was added to its acoustic cost.
    "Traced": {
        "frame": "int32",
        "ilabel": "int32",
        "olabel": "int32",
        "back": "int32",
        "name": "int32",
        "graph": "float32",
        "acoustic": "float32",
        "offset": "float32",
    },
    # An operand of a chain; the second line is what C makes of the first: bytes of an element, and
    # of the way to the next, 0 for single numbers.
    "ChainOperand": {
        **{"kind": "int32", "dtype": "int32", "written": "int32", "read": "int32"},
        **{"bytes": "int32", "size": "int32"},
    },
    # A function of registers, whose result is the next register.
    "ChainHead": {
        **{"function": "int32", "x": "int32", "y": "int32", "z": "int32"},
        "address": "int64",
    },
    # A step of a chain: its operation; where its operands are in memory, and which numbers it
    # reads; the function that it calls.
    "ChainStep": {
        **{"x": "int32", "y": "int32", "z": "int32", "w": "int32"},
        **{"number_x": "int32", "number_y": "int32", "number_z": "int32", "number_w": "int32"},
        **{"operation": "int32", "function": "int32"},
    },
    # A step as it runs: its function for blocks of some size; its operands, each an address or a
    # number.
    "ChainRun": dict.fromkeys(("run", *"xyzw"), "int64"),
    # An operand of a step that is no result before it: how many bytes after the first step, and
    # which operand, buffer, column or register it is.
    "ChainSeat": {"to": "int32", "of": "int32"},
}
"""Records that arrays are made of: the dtype of each field, by its name."""

ENUMS: dict[str, type[IntEnum]] = {
    "determinization": Undetermined,
    "lattices": BadLattice,
    "transducers": Asking,
}
"""Numbers that one C file alone has, besides those of constants.py."""

_LARGE = (
    "windows.images:windows.x_image windows.channels:windows.x_channel "
    "windows.height:windows.x_row windows.width:windows.x_pixel"
)
_SMALL = (
    "windows.images:windows.out_image windows.channels:windows.out_channel "
    "windows.high:windows.out_row windows.wide:windows.out_pixel"
)
_WINNERS = "windows.images windows.high windows.wide windows.channels"
# Panels of 32 outputs: for each tap and 32 channels a square of weights; behind all a mark of each.
_FILTER_TILES = "(outs+31)//32 (channels+31)//32*kernel_down*kernel_right*1024+1"

DECLARED: dict[str, tuple[Struct, ...]] = {
    "attention": (
        # A product that was made for arrays of some shape; without a function none is done.
        Struct("gemm", function=MAYBE, handle=MAYBE),
        Struct(
            "attend",
            count=COUNT,
            blocks=Structs("attend_block", "count"),
            heads=COUNT,  # of each block
            memory=updates(
                "bytes*threads", "bytes", optional=True
            ),  # for weights that are not kept
            bytes=COUNT,
            threads=SOME,  # that have some
            causal=FLAG,
            flags=FLAG,  # whether the mask is of these, or added
        ),
        # Some queries of heads, which lie along two axes. The products know how query, key, value
        # and out of a head lie.
        Struct(
            "attend_block",
            scores=Inner("gemm"),
            sums=Inner("gemm"),
            outer=COUNT,
            inner=COUNT,
            query=reads("outer:query_n inner:query_h 1:0"),
            query_n=step_of("query", 0),
            query_h=step_of("query", 1),
            key=reads("outer:key_n inner:key_h 1:0"),
            key_n=step_of("key", 0),
            key_h=step_of("key", 1),
            value=reads("outer:value_n inner:value_h 1:0"),
            value_n=step_of("value", 0),
            value_h=step_of("value", 1),
            out=writes("outer:out_n inner:out_h 1:0"),
            out_n=step_of("out", 0),
            out_h=step_of("out", 1),
            mask=reads(
                "outer:mask_n inner:mask_h rows:mask_down keys:mask_right", "bytes", optional=True
            ),
            mask_n=STEP,  # in bytes
            mask_h=STEP,
            mask_down=STEP,
            mask_right=STEP,
            key_mask=reads(
                "outer:key_mask_n inner:key_mask_h keys:key_mask_step", "bytes", optional=True
            ),
            key_mask_n=STEP,
            key_mask_h=STEP,
            key_mask_step=STEP,
            first=COUNT,
            rows=COUNT,
            keys=COUNT,
            weights=writes("outer:weights_n inner:weights_h rows keys", optional=True),
            weights_n=step_of("weights", 0),
            weights_h=step_of("weights", 1),
        ),
        # Queries that see past + 1, past + 2, ... keys of a cache; heads may lie in any way.
        Struct(
            "attend_cached",
            count=COUNT,
            heads=COUNT,
            queries=COUNT,
            keys=COUNT,
            width=COUNT,
            columns=COUNT,
            scale=REAL,
            past=reads("count", "int64"),
            query=reads("count:query_n heads:query_h queries:query_t width"),
            query_n=step_of("query", 0),
            query_h=step_of("query", 1),
            query_t=step_of("query"),
            key=reads("count:key_n heads:key_h keys:key_t width"),
            key_n=step_of("key", 0),
            key_h=step_of("key", 1),
            key_t=step_of("key"),
            value=reads("count:value_n heads:value_h keys:value_t columns"),
            value_n=step_of("value", 0),
            value_h=step_of("value", 1),
            value_t=step_of("value"),
            out=writes("count:out_n heads:out_h queries:out_t columns"),
            out_n=step_of("out", 0),
            out_h=step_of("out", 1),
            out_t=step_of("out"),
            memory=updates("threads heads keys"),
            threads=SOME,
        ),
        Struct(
            "attend_grad",
            count=COUNT,
            heads=Structs("attend_heads", "count"),
            each=COUNT,  # heads of each
            memory=updates("bytes*threads", "bytes"),
            bytes=COUNT,
            threads=SOME,
        ),
        Struct(
            "attend_heads",
            to_value=Inner("gemm"),
            to_weights=Inner("gemm"),
            to_query=Inner("gemm"),
            to_key=Inner("gemm"),
            outer=COUNT,
            inner=COUNT,
            queries=COUNT,
            keys=COUNT,
            width=COUNT,
            query=reads("outer:query_n inner:query_h 1:0"),
            query_n=step_of("query", 0),
            query_h=step_of("query", 1),
            key=reads("outer:key_n inner:key_h 1:0"),
            key_n=step_of("key", 0),
            key_h=step_of("key", 1),
            value=reads("outer:value_n inner:value_h 1:0"),
            value_n=step_of("value", 0),
            value_h=step_of("value", 1),
            out=reads("outer:out_n inner:out_h queries:out_step width"),
            out_n=step_of("out", 0),
            out_h=step_of("out", 1),
            out_step=step_of("out"),
            out_grad=reads("outer:grad_n inner:grad_h queries:grad_step width"),
            grad_n=step_of("out_grad", 0),
            grad_h=step_of("out_grad", 1),
            grad_step=step_of("out_grad"),
            weights=reads("outer:weights_n inner:weights_h queries keys"),
            weights_n=step_of("weights", 0),
            weights_h=step_of("weights", 1),
            query_grad=writes("outer:to_query_n inner:to_query_h 1:0", optional=True),
            to_query_n=step_of("query_grad", 0),
            to_query_h=step_of("query_grad", 1),
            key_grad=writes("outer:to_key_n inner:to_key_h 1:0", optional=True),
            to_key_n=step_of("key_grad", 0),
            to_key_h=step_of("key_grad", 1),
            value_grad=writes("outer:to_value_n inner:to_value_h 1:0", optional=True),
            to_value_n=step_of("value_grad", 0),
            to_value_h=step_of("value_grad", 1),
        ),
    ),
    "blas": (
        # A handle: the function takes the addresses of a, b and c beside it.
        Struct(
            "blas_product",
            "blas_product32",
            "blas_product64",
            function=ADDRESS,
            a_turned=FLAG,
            b_turned=FLAG,
            m=COUNT,
            n=COUNT,
            k=COUNT,
            a_step=COUNT,
            b_step=COUNT,
            c_step=COUNT,
            alpha=REAL,
            beta=REAL,
        ),
    ),
    "bayes_risk": (
        # What stands at each place of some words, by the paths of a lattice. Numbers of words are
        # those of a table, whose first one is no word. What is written begins with zeros.
        Struct(
            "place_masses",
            states=COUNT,
            arcs=COUNT,
            begin=reads("states+1", "int64"),  # of the arcs to each state
            source=reads("arcs", "int32"),
            word=reads("arcs", "int32"),
            share=reads("arcs", "float64"),  # of the paths to a state, those that take the arc
            time=reads("states", "float64"),
            places=COUNT,
            place=reads("places", "int32"),
            words=COUNT,
            delta=REAL,  # added to the distance where a word of a path is left out
            distance=updates("states places+1", "float64"),
            after=writes("places+1", "float64"),
            ways=writes("arcs places", "uint8"),
            onward=updates("states places+1", "float64"),
            masses=updates("places words 3", "float64"),  # then with times of begin and end
        ),
    ),
    "bf16_gemm": (
        Struct(
            "pack_tiles",
            k=COUNT,
            n=COUNT,
            b=reads("k:down n:right", "float32"),
            down=step_of("b"),
            right=step_of("b", -1),
            panels=writes("(n+31)//32 (k+31)//32*chunk+8", "bytes"),
            alpha=REAL,
        ),
        Struct(
            "product_tiles",
            "rows_tiles",
            "split_tiles",
            m=COUNT,
            n=COUNT,
            k=COUNT,
            a=reads("m:a_down k:a_right", "float32"),
            a_down=STEP,  # one of both is 1
            a_right=STEP,
            panels=reads("(n+31)//32 (k+31)//32*chunk+8", "bytes"),
            out=updates("m:out_step n", "float32"),
            out_step=step_of("out"),
            begin=reads("m:begin_step n", "float32", optional=True),
            begin_step=step_of("begin"),
            # The second factor itself, for numbers that tiles cannot hold.
            b=reads("k:b_down n:b_right", "float32"),
            b_down=step_of("b"),
            b_right=step_of("b", -1),
            alpha=REAL,
            tiles=updates("(m+31)//32 (k+31)//32 chunk+8", "bytes", optional=True),  # of a
            fresh=FLAG,  # whether the threads have just packed the panels
        ),
    ),
    "block_products": (
        # Weights of 4 or 8 bits, a row for each column of the result, in blocks with a scale each,
        # or of 16 bits, in bfloat16. The first factor is arranged before: as floats, or as bytes
        # with scales and sums of its blocks.
        Struct(
            "arrange_blocks",
            m=COUNT,
            k=COUNT,
            bits=Whole(4, 16),
            block=Whole(32),
            x=reads("m:x_step k", "float32"),
            x_step=step_of("x"),
            reals=writes("m whole(k,block)", "float32", optional=True),
            rounded=writes("m whole(k,block)", "bytes", optional=True),
            scales=writes("m whole(k,block)//block", "float32", optional=True),
            sums=writes("m whole(k,block)//block", "int32", optional=True),
            where=(
                "block % 32 == 0",
                "bits == 4 or bits == 8 or bits == 16 and given(reals)",
                "given(reals) != given(rounded)",
                "given(scales,sums) or not given(rounded)",
            ),
        ),
        Struct(
            "block_product",
            m=COUNT,
            n=COUNT,
            k=COUNT,
            bits=Whole(4, 16),
            block=Whole(32),
            reals=reads("m whole(k,block)", "float32", optional=True),
            rounded=reads("m whole(k,block)", "bytes", optional=True),
            scales=reads("m whole(k,block)//block", "float32", optional=True),
            sums=reads("m whole(k,block)//block", "int32", optional=True),
            w=reads("n whole(k,block)*bits//8", "uint8"),
            scale=reads("n whole(k,block)//block", "float32", optional=True),
            zero=reads("n (whole(k,block)//block*bits+7)//8", "uint8", optional=True),
            bias=reads("n", "float32", optional=True),
            out=writes("m:out_step n", "float32"),
            out_step=step_of("out"),
            where=(
                "block % 32 == 0",
                "bits == 4 or bits == 8 or bits == 16 and given(reals)",
                "given(scale) or bits == 16",
                "given(reals) != given(rounded)",
                "given(scales,sums) or not given(rounded)",
            ),
        ),
    ),
    "boxes": (
        # Of each class the numbers of those that overlap none that is better and kept, the best
        # first.
        Struct(
            "best_boxes",
            classes=COUNT,
            count=COUNT,
            boxes=reads("count 4", "float32"),
            centered=FLAG,  # whether a box is its center and its sizes; else two corners
            scores=reads("classes count", "float32"),
            limited=FLAG,  # whether scores have to be above the least one
            least_score=REAL,
            bound=REAL,  # of what two have in common, as a part of what they cover
            most=COUNT,
            corners=writes("count 4", "float32"),
            heap=writes("count", "int64"),
            sides=writes("5 most", "float32"),
            kept=writes("classes most", "int64"),
            found=writes("classes", "int64"),  # how many each class keeps
        ),
    ),
    "bytes": (
        Struct(
            "above_zero",
            rows=COUNT,
            columns=COUNT,
            x=reads("rows:x_step columns", "float32"),
            x_step=step_of("x"),
            out=writes("rows:out_step columns", "uint8"),
            out_step=step_of("out"),
        ),
        Struct(
            "of_bytes",
            rows=COUNT,
            columns=COUNT,
            x=reads("rows:x_step columns", "uint8"),
            x_step=step_of("x"),
            out=writes("rows:out_step columns", "float32"),
            out_step=step_of("out"),
        ),
    ),
    "column_sums": (
        Struct(
            "sums",
            rows=COUNT,
            columns=COUNT,
            x=reads("rows:step columns"),
            step=step_of("x"),
            out=writes("columns"),
        ),
    ),
    "chains": (
        # What a kernel does with its results: nothing, limits, or hard swish (limits 0 and 6).
        Struct("activation", kind=Whole(0, 2), low=REAL, high=REAL),
        # A program: framework/fusion/chains.py. Registers are numbers in double that are known
        # before the loop: the literals, the operands that are one number, and results of the head.
        # The numbers that steps read are some registers, then elements of columns.
        Struct(
            "chain_program",
            "chain_prepare",
            compiled=MAYBE,  # function of a compiled loop that does the same
            done=RESULT,  # work that was interpreted; from `enough` on `hot` becomes 1
            work=COUNT,  # of one element
            enough=COUNT,
            hot=ADDRESS,
            literals=reads("literal_count", "float64"),
            literal_count=COUNT,
            operands=updates("operand_count", "ChainOperand"),
            operand_count=SOME,
            head=updates("head_count", "ChainHead"),
            head_count=COUNT,
            registers=reads("register_count", "int64"),
            register_count=COUNT,
            columns=reads("column_count", "int64"),
            column_count=COUNT,
            steps=reads("step_count", "ChainStep"),
            step_count=SOME,
            buffers=COUNT,
            # All of a run that does not depend on where operands are; `prepare` makes it. Runs are
            # those for blocks of each size; they are copied by vectors, the last of which may read
            # more. Seats are those of arrays, of buffers, of columns and of registers.
            runs=writes("block_sizes*step_count+more_steps", "ChainRun"),
            seats=writes("4*step_count", "ChainSeat"),
            buffers_from=RESULT,
            columns_from=RESULT,
            numbers_from=RESULT,
            seat_count=RESULT,
            ones=RESULT,  # operands that are one number
            room=RESULT,  # elements of a buffer
            direct=RESULT,  # the loop that the program is, or 0
            where=(
                f"end(operands,'kind') <= {ONE + 1}",
                f"end(operands,'dtype') <= {OF_INT64 + 1}",
                "end(columns) <= operand_count",
                *(
                    f"end({one}) <= literal_count + operand_count + head_count"
                    for one in ("registers", "head,'x'", "head,'y'", "head,'z'")
                ),
                "end(head,'function') <= number_functions",
                "end(steps,'operation') <= operations",
                "end(steps,'function') <= array_functions",
                *(f"end(steps,'{one}') <= operand_count + buffers" for one in "xyzw"),
                *(
                    f"end(steps,'number_{one}') <= register_count + column_count + 1"
                    for one in "xyzw"
                ),
            ),
        ),
        # Where an operand begins, and its step from row to row in elements.
        Struct("chain_place", at=updates("1:0", "bytes"), step=NUMBER),
        # A run of a program; how far its operands reach depends on what they are.
        Struct(
            "chain",
            rows=COUNT,
            columns=COUNT,
            program=ADDRESS,
            places=Rest("chain_place"),
        ),
        # A chain over results of a kernel, whose pixels lie `outs` apart in memory of its own.
        Struct(
            "epilogue",
            function=ADDRESS,
            chain=Structs("chain", "1"),  # for the first pixel
            operands=COUNT,
            sizes=reads("operands", "int64"),  # bytes of an element, or 0 for single numbers
            made=COUNT,
            out=COUNT,
            plane=SOME,  # pixels of an image
            pixel=STEP,  # of `out`; not read where channels lie apart
            where=("made < operands", "out < operands"),
        ),
    ),
    "convolution": (
        Struct(
            "pack_weights",
            overlap=FLAG,  # whether the last vector has the last outputs, and not zeros after them
            outs=COUNT,
            inner=COUNT,
            taps=COUNT,
            w=reads("outs:out_step inner:in_step end(places):1"),
            out_step=STEP,
            in_step=STEP,
            places=reads("taps", "int64"),
            panels=writes("(outs+lanes-1)//lanes:panel taps*inner*lanes:1"),
            panel=COUNT,
            old=updates("outs out_step", optional=True),  # what the panels were made of before
            where=("not overlap or outs >= lanes",),
        ),
        # Outputs that the same taps go into.
        Struct(
            "phase",
            vectors=COUNT,  # of outputs
            inner=COUNT,
            taps=COUNT,
            tap_places=reads("taps", "int64"),
            panels=reads("vectors:panel taps*inner*lanes:1"),
            panel=COUNT,
            pixels=COUNT,
            pixel_places=reads("pixels", "int64"),  # in the image
            memory_places=reads("pixels", "int64"),  # in the memory, or in out
            places=reads("pixels", "int64"),  # in out
            depth=COUNT,  # elements that are read at a place of the image
            image_span=COUNT,
            where=("not taps or end(pixel_places) + end(tap_places) - 2 + depth <= image_span",),
        ),
        Struct(
            "conv",
            images=COUNT,
            parts=SOME,  # of an image
            sliced=FLAG,  # whether each part has some of the outputs, and not of the pixels
            threads=SOME,  # parts at once, that have memory
            channels=COUNT,
            outs=COUNT,
            # With zeros to whole vectors; where there are factors it is added after them.
            bias=reads("whole(outs,lanes)", optional=True),
            factors=reads("whole(outs,lanes)", optional=True),
            activation=Inner("activation"),
            out=writes("images:out_image span:1 outs:out_channel"),
            # Added to the results, before the activation; it may be in the memory of out.
            other=reads("images:out_image span:1 outs:out_channel", optional=True),
            out_image=STEP,
            out_channel=STEP,
            span=COUNT,  # one more than the largest of the places in out
            # Of results before they are turned, pooled or read by the epilogue.
            memory=updates("threads room", optional=True),
            room=COUNT,
            block=COUNT,  # pixels of the most but the last, with half as many; 0: those of an image
            epilogue=Structs("epilogue", "1", optional=True),
            step=STEP,  # of neighboring pixels
            count=COUNT,
            phases=Structs("phase", "count"),
            image=Inner("image"),
            pool=Structs("pool", "1", optional=True),  # of one image, from the memory into out
            deep=FLAG,  # whether each output has one channel of its own
            where=("not given(other) or not (block or deep or given(pool) or outs % lanes)",),
        ),
        Struct(
            "sums_of",
            parts=SOME,
            images=COUNT,
            threads=SOME,
            rows=COUNT,  # taps and channels; taps alone if `deep`
            row_places=reads("rows", "int64"),
            pixels=COUNT,
            pixel_places=reads("pixels", "int64"),
            outs=COUNT,
            few=SOME,  # pixels that are taken at a time
            sets=SOME,  # of sums: one of each part, which is of images, or one of parts of the outs
            sums=writes("sets rows+1 outs"),
            grad_step=STEP,  # of a pixel
            image=Inner("image"),
            grad=Inner("image"),
            deep=FLAG,
            where=(
                "outs % lanes == 0",
                "sets == parts or sets == 1",
                "not rows or not pixels or end(pixel_places) + end(row_places) - 1"
                " + deep * (outs - 1) <= span(image)",
            ),
        ),
        Struct(
            "total",
            parts=SOME,
            rows=COUNT,
            outs=COUNT,
            sums=updates("parts rows+1 outs"),
            wanted=COUNT,  # outs
            w_grad=writes("end(places):1 wanted:w_step", optional=True),
            places=reads("rows", "int64"),
            in_order=FLAG,  # whether these are 0, 1, 2 and so on
            w_step=STEP,
            b_grad=writes("wanted:b_step", optional=True),
            b_step=step_of("b_grad", -1),
            where=("wanted <= outs", "not in_order or rows <= 1 or end(places) == rows"),
        ),
    ),
    "depthwise": (
        # Convolutions whose outputs have one channel of their own; channels lie side by side.
        Struct(
            "depthwise",
            windows=Inner("windows"),
            x=reads(_LARGE),
            out=writes(_SMALL),
            panels=reads(
                "(windows.channels+lanes-1)//lanes windows.kernel_down*windows.kernel_right*lanes"
            ),
            bias=reads("windows.channels", optional=True),
            factors=reads("windows.channels", optional=True),  # before the bias is added
            activation=Inner("activation"),
            threads=SOME,  # parts at once, that have memory
            memory=updates("threads windows.wide*windows.channels", optional=True),  # a row
            epilogue=Structs("epilogue", "1", optional=True),  # of what is in it
            where=(
                "windows.channels >= lanes",
                *("windows.x_channel == 1", "windows.out_channel == 1"),
                "given(epilogue) == given(memory)",
            ),
        ),
    ),
    "determinization": (
        # Where it fails, `labels` are those that led there, and those of two outputs.
        Struct(
            "determinized",
            fst=Inner("fst"),
            delta=REAL,
            limit=NUMBER,  # of states and steps; none if it is not above 0
            log=FLAG,
            most_turns=COUNT,  # of a state in loops of epsilons whose probabilities add up
            most_waiting=COUNT,  # output labels that are still to come
            **_MADE,
            labels=RESULT,
            reached=RESULT,  # how many labels
            one=RESULT,
            other=RESULT,
            status=RESULT,
        ),
    ),
    "dot_products": (
        Struct(
            "dots",
            m=COUNT,
            n=COUNT,
            k=COUNT,
            a=reads("m:a_step k"),
            a_step=COUNT,
            w=reads("n:w_step k"),
            w_step=COUNT,
            out=updates("m:out_step n"),
            out_step=COUNT,
            begin=reads("m:begin_step n", optional=True),
            begin_step=step_of("begin"),
            alpha=REAL,
            where=("n >= least",),
        ),
    ),
    "features": (
        # Weighted sums of neighboring rows, in the order of these.
        Struct(
            "weighted_rows",
            rows=COUNT,
            points=COUNT,
            columns=COUNT,
            weight_count=COUNT,
            first=reads("rows", "int64"),  # row of x
            begin=reads("rows+1", "int64"),  # of its weights
            weights=reads("weight_count", "float32"),
            x=reads("points columns", "float32"),
            out=writes("rows columns", "float32"),
        ),
        # Frames normalized by the window that ends with each, as speech/features/cmvn.py does it.
        Struct(
            "cmvn_frames",
            frames=COUNT,
            dim=SOME,
            rows=Whole(1, 2),  # sums; squares where variances are normalized
            heard=COUNT,  # frames so far
            numbers=reads("frames", "int64"),
            features=reads("frames dim", "float32"),
            sums=reads("heard+1 rows*dim", "float64"),
            everyone=reads("2 dim+1", "float64"),
            known=reads("2 dim+1", "float64", optional=True),
            skipped=reads("dim", "uint8"),
            window=REAL,
            speaker_frames=REAL,
            global_frames=REAL,
            least_energy=REAL,
            least_variance=REAL,
            before=updates("3", "float64"),  # window and shares of the frame before
            normal=writes("frames dim", "float32"),
            done=RESULT,
        ),
    ),
    "few_rows": (
        # The products of pieces of k, which `few_added` adds up.
        Struct(
            "few",
            m=COUNT,
            n=COUNT,
            k=COUNT,
            a=reads("m:a_step k"),
            a_step=step_of("a"),
            b=reads("k:b_step n"),
            b_step=step_of("b"),
            pieces=SOME,
            sums=writes("pieces m n"),
            backward=reads("1", "int64"),  # whether the last piece comes first
        ),
        Struct(
            "few_added",
            m=COUNT,
            n=COUNT,
            pieces=SOME,
            sums=updates("pieces m n"),
            out=writes("m:step n"),
            step=step_of("out"),
            bias=reads("n", optional=True),
            alpha=REAL,
            backward=updates("1", "int64"),
        ),
        # One row with packed blocks of columns.
        Struct(
            "line",
            k=COUNT,
            n=COUNT,
            a=reads("k"),
            panels=reads("whole(n,lanes) k", "packed"),
            out=updates("n"),
            begin=reads("n", optional=True),
            # Whether a thread that begins with a block goes backward, in a cache line of its own.
            ways=updates("whole(n,wide)//wide 8", "int64"),
        ),
        Struct(
            "pack_line",
            k=COUNT,
            n=COUNT,
            b=reads("k:down n:right"),
            down=step_of("b"),
            right=step_of("b", -1),
            panels=writes("whole(n,lanes) k", "packed"),
            alpha=REAL,
        ),
    ),
    "image_norm": (
        # `side`: arrays are rows of channels; else planes of one channel each, image by image.
        # The moments are number, mean and squares about it of each channel, for each part.
        Struct(
            "channel_moments",
            parts=SOME,
            side=FLAG,
            images=COUNT,
            channels=COUNT,
            size=COUNT,
            x=reads("images:x_step channels*size:1"),
            x_step=step_of("x", 0),
            moments=writes("parts channels 3", "float64"),
        ),
        Struct(
            "settle",
            parts=SOME,
            channels=COUNT,
            moments=reads("parts channels 3", "float64", optional=True),  # else the running values
            mean=reads("channels"),  # running
            variance=reads("channels"),
            mean_out=writes("channels", optional=True),
            variance_out=writes("channels", optional=True),
            momentum=REAL,
            epsilon=REAL,
            used=writes("channels"),  # the mean
            inverse=writes("channels"),  # 1 / deviation
            scale=reads("channels"),
            factor=writes("channels"),  # scale / deviation
        ),
        Struct(
            "weights",
            samples=COUNT,  # of the minibatch; 0: it does not train
            seen=reads("1", "float64"),  # before
            seen_out=writes("1", "float64"),
            time=reads("1", "float64"),  # constants of running and of blending
            blend=reads("1", "float64"),
            weights=writes("2", "float64"),
            own=writes("1", "float64", optional=True),  # of this minibatch
        ),
        Struct(
            "settle_blended",
            parts=SOME,
            channels=COUNT,
            moments=reads("parts channels 3", "float64", optional=True),
            mean=reads("channels"),
            variance=reads("channels"),
            mean_out=writes("channels"),
            variance_out=writes("channels"),
            weights=reads("2", "float64"),
            epsilon=REAL,
            used=writes("channels"),
            inverse=writes("channels"),
            scale=reads("channels"),
            factor=writes("channels"),
        ),
        Struct(
            "fold",
            places=COUNT,
            channels=COUNT,
            mean=reads("channels"),
            factor=reads("channels"),
            bias=reads("channels"),
            before=reads("channels:before_step", optional=True),  # the bias before it
            before_step=step_of("before", -1),
            factors=writes("places"),
            terms=writes("places"),
        ),
        Struct(
            "apply",
            side=FLAG,
            images=COUNT,
            channels=COUNT,
            size=COUNT,
            x=reads("images:x_step channels*size:1"),
            x_step=step_of("x", 0),
            out=writes("images:out_step channels*size:1"),
            out_step=step_of("out", 0),
            mean=reads("channels"),
            factor=reads("channels"),
            bias=reads("channels"),
        ),
        Struct(
            "slopes",
            parts=SOME,
            side=FLAG,
            images=COUNT,
            channels=COUNT,
            size=COUNT,
            x=reads("images:x_step channels*size:1"),
            x_step=step_of("x", 0),
            grad=reads("images:grad_step channels*size:1"),
            grad_step=step_of("grad", 0),
            mean=reads("channels"),
            sums=writes("parts channels 2", "float64"),
        ),
        Struct(
            "factors",
            parts=SOME,
            channels=COUNT,
            sums=reads("parts channels 2", "float64"),
            count=COUNT,  # values of a channel; 0: the statistics do not follow x
            inverse=reads("channels"),
            scale=reads("channels"),
            scale_grad=writes("channels", optional=True),
            bias_grad=writes("channels", optional=True),
            out=writes("3 channels"),
            follows=reads("1", "float64", optional=True),  # how far; None: all the way
        ),
        Struct(
            "slope_of",
            side=FLAG,
            images=COUNT,
            channels=COUNT,
            size=COUNT,
            x=reads("images:x_step channels*size:1"),
            x_step=step_of("x", 0),
            grad=reads("images:grad_step channels*size:1"),
            grad_step=step_of("grad", 0),
            mean=reads("channels"),
            factors=reads("3 channels"),
            out=writes("images:out_step channels*size:1"),
            out_step=step_of("out", 0),
        ),
    ),
    "images": (
        # Matrices turned: out[i][j] = x[j][i], from some places of x to some of out.
        Struct(
            "turned",
            count=COUNT,
            rows=COUNT,  # of x
            columns=COUNT,
            x=reads("end(x_places):1 rows:down columns:1"),
            x_places=reads("count", "int64"),
            down=STEP,
            out=writes("end(out_places):1 columns:across rows:1"),
            out_places=reads("count", "int64"),
            across=STEP,
        ),
        # Images, of which copies may be made: their channels side by side, with zeros around.
        Struct(
            "image",
            images=COUNT,
            x=reads("images:x_step channels:down height:row width:pixel"),
            x_step=STEP,
            channels=COUNT,
            height=COUNT,
            width=COUNT,
            down=STEP,  # from a channel to the next
            row=STEP,
            pixel=STEP,
            copied=FLAG,
            high=COUNT,  # of a copy; where the image begins in it
            wide=COUNT,
            top=NUMBER,
            left=NUMBER,
            copies=updates("count room", optional=True),
            count=COUNT,
            room=COUNT,
            where=(
                "not copied or given(copies)",
                "not copied or high * wide * channels <= room",
            ),
        ),
        Struct("pad", image=Inner("image")),
    ),
    "integer_convolution": (
        Struct(
            "integer_convolution",
            columns=Inner("integer_columns"),  # of a group: taps times channels rows
            images=COUNT,
            channels=COUNT,  # of a group
            **_PLANES,
            **_DILATED,
            x=reads("images:x_image height:x_row width:x_pixel columns.groups*channels", "bytes"),
            x_image=STEP,
            x_row=STEP,
            x_pixel=STEP,
            out=writes("images*high*wide:out_pixel columns.groups*columns.n*size", "bytes"),
            out_pixel=STEP,
            size=SOME,  # bytes of a result
            threads=SOME,  # parts at once, that have memory
            memory=updates("threads 64*columns.k", "bytes", optional=True),
            where=(
                "columns.k == kernel_down * kernel_right * channels",
                # Without memory for them windows are the pixels of x, one after another.
                "given(memory) or (high, wide) == (height, width)",
                "given(memory) or x_row == width * x_pixel and x_image == height * x_row",
                "given(memory) or (kernel_down, kernel_right) == (1, 1)",
                "given(memory) or (stride_down, stride_right) == (1, 1)",
                "given(memory) or (before_down, before_right) == (0, 0)",
                "size == 4 or columns.out_zero",
            ),
        ),
        Struct(
            "pack_depthwise",
            channels=COUNT,
            taps=COUNT,
            w=reads("channels taps", "bytes"),
            is_unsigned=FLAG,
            w_zero=reads("w_zeros", "bytes", optional=True),
            w_zeros=COUNT,
            x_is_signed=FLAG,
            x_zero=reads("1", "bytes", optional=True),
            bias=reads("channels", "int32", optional=True),
            scale=reads("scales", "float32", optional=True),
            scales=COUNT,
            panels=writes("taps channels", "int32"),
            first=writes("channels", "int32"),
            factors=writes("channels", "float32"),
            padding=writes("channels", "bytes"),
        ),
        # Each output has one channel of its own; the filters are as `pack_depthwise` leaves them.
        Struct(
            "integer_depthwise",
            images=COUNT,
            channels=Whole(16),
            **_PLANES,
            **_DILATED,
            x=reads("images:x_image height:x_row width:x_pixel channels", "bytes"),
            x_image=STEP,
            x_row=STEP,
            x_pixel=STEP,
            is_signed=FLAG,
            out=writes("images*high*wide:out_pixel channels*size", "bytes"),
            out_pixel=STEP,
            size=SOME,
            panels=reads("kernel_down*kernel_right channels", "int32"),
            first=reads("channels", "int32"),
            factors=reads("channels", "float32"),
            padding=reads("channels", "bytes"),
            scaled=FLAG,
            out_zero=reads("1", "bytes", optional=True),
            out_is_signed=FLAG,
            where=(
                "kernel_down * kernel_right <= 1024",
                "size == 4 or given(out_zero)",
                "scaled or not given(out_zero)",
            ),
        ),
    ),
    "integer_gemm": (
        # The second factor, groups of n columns, and what becomes of the sums.
        Struct(
            "integer_columns",
            groups=SOME,
            n=COUNT,  # columns of a group
            k=COUNT,
            is_signed=FLAG,  # whether the first factor is
            a_zero=reads("1", "bytes", optional=True),
            panels=reads("groups whole(n,32) whole(k,4)", "bytes"),
            sums=reads("groups whole(n,32)", "int32"),
            is_unsigned=FLAG,  # whether the second factor is
            b_zero=reads("b_zeros", "bytes", optional=True),
            b_zeros=COUNT,
            bias=reads("groups*n", "int32", optional=True),
            scale=reads("scales", "float32", optional=True),
            scales=COUNT,
            out_zero=reads("1", "bytes", optional=True),
            out_is_signed=FLAG,
            where=(
                "b_zeros <= 1 or b_zeros == groups * n",
                "scales <= 1 or scales == groups * n",
                "given(scale) or not given(out_zero)",
            ),
        ),
        Struct(
            "integer_product",
            columns=Inner("integer_columns"),
            m=COUNT,
            a=reads("m:a_step columns.k", "bytes"),
            a_step=step_of("a"),
            out=writes("m:step columns.n*size", "bytes"),
            step=step_of("out"),
            size=SOME,  # bytes of a result
            where=("size == 4 or columns.out_zero", "columns.groups == 1"),
        ),
        Struct(
            "pack_integers",
            groups=SOME,
            k=COUNT,
            n=COUNT,
            b=reads("groups*n:right end(rows)", "bytes"),
            rows=reads("k", "int64"),  # where each begins
            right=STEP,
            is_unsigned=FLAG,
            panels=writes("groups whole(n,32) whole(k,4)", "bytes"),
            sums=writes("groups whole(n,32)", "int32"),
        ),
    ),
    "integers": (
        # Images of some channels, which lie side by side where they are bytes.
        Struct(
            "quantize",
            images=COUNT,
            channels=COUNT,
            size=COUNT,
            x=reads("images channels size", "float32"),
            scale=reads("1", "float32"),
            zero=reads("1", "bytes", optional=True),
            is_signed=FLAG,
            out=writes("images size channels", "bytes"),
        ),
        Struct(
            "dequantize",
            images=COUNT,
            channels=COUNT,
            size=COUNT,
            x=reads("images size channels", "bytes"),
            is_signed=FLAG,
            scale=reads("1", "float32"),
            zero=reads("1", "bytes", optional=True),
            out=writes("images channels size", "float32"),
        ),
        Struct(
            "range_of",
            count=COUNT,
            parts=SOME,
            x=reads("count", "float32"),
            ranges=writes("parts 2", "float32"),
        ),
        Struct(
            "scale_of",
            parts=SOME,
            ranges=reads("parts 2", "float32"),
            scale=writes("1", "float32"),
            zero=writes("1", "bytes"),
        ),
        # Sums or products of bytes of three scales.
        Struct(
            "combine",
            images=COUNT,
            rows=COUNT,
            columns=SOME,
            multiplies=FLAG,
            is_signed=FLAG,
            x=reads("images:x_image rows:x_step columns", "bytes"),
            x_image=STEP,
            x_step=STEP,  # columns; 0: one row for all of an image
            x_scale=reads("1", "float32"),
            x_zero=reads("1", "bytes", optional=True),
            y=reads("images:y_image rows:y_step columns", "bytes"),
            y_image=STEP,
            y_step=STEP,
            y_scale=reads("1", "float32"),
            y_zero=reads("1", "bytes", optional=True),
            out_scale=reads("1", "float32"),
            out_zero=reads("1", "bytes", optional=True),
            out=writes("images rows columns", "bytes"),
            where=("x_step in (0, columns)", "y_step in (0, columns)"),
        ),
        Struct(
            "look_up",
            count=COUNT,
            x=reads("count", "bytes"),
            table=reads("256", "bytes"),
            out=writes("count", "bytes"),
        ),
        Struct(
            "most_of",
            images=COUNT,
            channels=COUNT,
            **_PLANES,
            is_signed=FLAG,
            x=reads("images:x_image height:x_row width:x_pixel channels", "bytes"),
            x_image=STEP,
            x_row=STEP,
            x_pixel=STEP,
            out=writes("images*high*wide:out_pixel channels", "bytes"),
            out_pixel=STEP,
        ),
        Struct(
            "means_of",
            images=COUNT,
            channels=COUNT,
            pixels=COUNT,
            is_signed=FLAG,
            x=reads("images:x_image pixels:x_pixel channels", "bytes"),
            x_image=STEP,
            x_pixel=STEP,
            x_scale=reads("1", "float32"),
            x_zero=reads("1", "bytes", optional=True),
            out_scale=reads("1", "float32"),
            out_zero=reads("1", "bytes", optional=True),
            out=writes("images channels", "bytes"),
        ),
    ),
    "lattices": (
        # What is made, `lattice_copy` copies and frees.
        Struct(
            "lattice_determinized",
            states=COUNT,
            count=COUNT,
            source=reads("count", "int32"),
            target=reads("count", "int32"),
            label=reads("count", "int32"),
            id=reads("count", "int32"),  # -1: none
            cost=reads("count", "float64"),
            graph=reads("count", "float64"),
            finals=COUNT,
            final=reads("finals", "int32"),
            final_cost=reads("finals", "float64"),
            final_graph=reads("finals", "float64"),
            unsorted=FLAG,  # whether states are to be sorted first
            ids=COUNT,
            # The phone that begins with each id, 0: none; None: words alone are labels.
            starts=reads("ids", "int32", optional=True),
            words=FLAG,  # whether words alone are labels at last
            beam=REAL,  # then what was reached
            delta=REAL,
            retry_cutoff=REAL,
            max_mem=COUNT,
            max_arcs=COUNT,
            arc_bytes=COUNT,
            element_bytes=COUNT,
            string_bytes=COUNT,
            least_room=REAL,
            made=RESULT,
            made_states=RESULT,
            made_count=RESULT,
            made_ends=RESULT,
            made_ids=RESULT,
            incomplete=RESULT,
            wrong=RESULT,  # the arc that is refused, or the end, after all arcs
            status=RESULT,
        ),
        Struct(
            "lattice_copy",
            made=ADDRESS,
            states=COUNT,
            begin=writes("states+1", "int64"),  # of the arcs of each state
            count=COUNT,
            arcs=writes("count", "LatticeArc"),  # then ends
            ids=COUNT,
            id=writes("ids", "int32"),  # of all these
        ),
    ),
    "local_epsilons": (
        # Every state is on a path.
        Struct(
            "without_epsilons",
            fst=Inner("fst"),
            log=FLAG,
            sums_in_log=FLAG,
            **_MADE,
            status=RESULT,
        ),
    ),
    "label_lines": (
        # Labels of whole utterances in a text; numbers are those of words in order of appearance,
        # or the ones that stand behind the words.
        Struct(
            "label_lines",
            size=COUNT,
            text=reads("size", "uint8"),
            begin=COUNT,
            numbered=FLAG,
            most=COUNT,
            starts=writes("most", "float64"),
            stops=writes("most", "float64"),
            numbers=writes("most", "int32"),
            most_utterances=COUNT,
            titles=writes("most_utterances", "int64"),
            title_ends=writes("most_utterances", "int64"),
            ends=writes("most_utterances", "int64"),  # of the labels of each
            room=COUNT,  # for different words
            places=writes("room", "int64"),
            lengths=writes("room", "int64"),
            labels=RESULT,
            utterances=RESULT,
            words=RESULT,
            at=RESULT,
            where=("begin <= size",),
        ),
    ),
    "mersenne": (
        Struct(
            "mersenne64",
            turns=COUNT,
            state=updates("312", "uint64"),
            out=writes("turns 312", "uint64"),
        ),
        # Numbers from `low` on, below `high`: float32 if `single`, else float64.
        Struct(
            "uniform",
            count=COUNT,
            single=FLAG,
            state=updates("312", "uint64"),
            out=writes("count*(8-4*single)", "bytes"),
            low=REAL,
            span=REAL,
            high=REAL,
        ),
    ),
    "interpolation": (
        # Rows of an image, or of a plane of one channel, each of a few of the rows of the input.
        Struct(
            "interpolate",
            images=COUNT,
            channels=SOME,
            inner=SOME,  # channels of a pixel that lie side by side
            side=FLAG,  # whether these are all channels; else each plane is an image
            height=SOME,
            width=SOME,
            high=COUNT,  # of the result
            wide=COUNT,
            x=reads("images:x_image channels:x_channel height:x_row width:inner"),
            x_image=STEP,
            x_channel=STEP,
            x_row=STEP,
            out=writes("images:out_image channels:out_channel high:out_row wide:inner"),
            out_image=STEP,
            out_channel=STEP,
            out_row=STEP,
            taps=Whole(1, 4),  # 1: the nearest place, 2: linear, 4: cubic
            aligned=FLAG,  # whether the corners are the same places
            scale_down=REAL,  # 0: as the sizes say
            scale_right=REAL,
            threads=SOME,
            line=writes("threads width*inner"),
            places=writes("threads 4*wide", "int64"),
            shares=writes("threads 4*wide"),
            where=(
                "taps != 3",
                "inner == (channels if side else 1)",
                "not side or x_channel == out_channel == 1",
            ),
        ),
    ),
    "ivectors": (
        Struct(
            "conjugate_gradients",
            dim=COUNT,
            iterations=COUNT,
            matrix=reads("dim dim", "float64"),
            vector=reads("dim", "float64"),
            solution=updates("dim", "float64"),
            memory=writes("4 dim", "float64"),
            recomputed=REAL,  # how far the squared residual moves before it is computed anew
            tiny=REAL,
            solved=RESULT,
        ),
        # Frames with their weights, added to the terms of an iVector.
        Struct(
            "ivector_frames",
            frames=COUNT,
            dim=COUNT,
            gaussians=SOME,
            ivector=SOME,
            most=SOME,  # Gaussians of a frame
            least=REAL,  # of a posterior
            scale=REAL,  # of posteriors
            normalized=reads("frames dim", "float32"),
            used=reads("frames dim", "float32"),
            weights=reads("frames", "float32"),
            constants=reads("gaussians", "float32"),
            means=reads("dim gaussians", "float64"),  # times inverse variances
            inverses=reads("dim gaussians", "float64"),
            projections=reads("gaussians dim*ivector", "float64"),
            precisions=reads("gaussians dim*(dim+1)//2", "float64"),
            # What is derived of them, and of which Gaussians it is there.
            linears=updates("gaussians dim*ivector", "float64"),
            quadratics=updates("gaussians ivector*(ivector+1)//2", "float64"),
            derived=updates("gaussians", "uint8"),
            linear=updates("ivector", "float64"),
            quadratic=updates("ivector*(ivector+1)//2", "float64"),
            numbers=writes("2*gaussians", "int64"),
            memory=writes("3*gaussians+2*most+dim+ivector+rows*frames", "float64"),
            rows=COUNT,  # of Gaussians of all frames, at most
            sums=writes("2", "float64"),  # of weights of Gaussians, and the log-likelihood
        ),
    ),
    "minimization": (
        Struct(
            "minimized",
            fst=Inner("fst"),
            step=REAL,  # weights are rounded to multiples of it
            **_MADE,
            status=RESULT,
        ),
    ),
    "mkl_rows": (
        Struct(
            "mkl_rows",
            "mkl_pack",
            m=COUNT,
            n=COUNT,
            k=COUNT,
            a=reads("m:a_step k"),
            a_step=COUNT,
            b=reads("(n,k)[not(b_turned)]:b_step (k,n)[not(b_turned)]"),
            b_step=COUNT,
            b_turned=FLAG,
            panels=updates("0", "packed"),  # of a size that MKL tells
            out=updates("m:out_step n"),
            out_step=COUNT,
            bias=reads("n", optional=True),
            pack=ADDRESS,
            multiply=ADDRESS,
            alpha=REAL,
            beta=REAL,
            high=SOME,  # rows at a time
        ),
    ),
    "packed_gemm": (
        Struct(
            "product",
            m=COUNT,
            n=COUNT,
            k=COUNT,
            a=reads("m:down k:right"),
            down=step_of("a"),
            right=step_of("a", -1),
            panels=reads("whole(n,panel) k", "packed"),
            out=updates("m:out_step n"),
            out_step=step_of("out"),
            begin=reads("m:begin_step n", optional=True),
            begin_step=step_of("begin"),
        ),
        Struct(
            "pack",
            k=COUNT,
            n=COUNT,
            b=reads("k:down n:right"),
            down=step_of("b"),
            right=step_of("b", -1),
            panels=writes("whole(n,panel) k", "packed"),
            alpha=REAL,
        ),
    ),
    "pooling": (
        # Windows of images, their places and steps; of means the factors of rows and columns.
        Struct(
            "windows",
            images=COUNT,
            channels=COUNT,
            **_PLANES,
            x_image=STEP,
            x_channel=STEP,
            x_row=STEP,
            x_pixel=STEP,
            out_image=STEP,
            out_channel=STEP,
            out_row=STEP,
            out_pixel=STEP,
            means=FLAG,
            down=reads("high", optional=True),
            right=reads("wide", optional=True),
            where=("not means or given(down, right)",),
        ),
        Struct(
            "pool",
            windows=Inner("windows"),
            x=reads(_LARGE),
            out=writes(_SMALL),
            winners=writes(_WINNERS, "uint8", optional=True),  # numbers of taps
        ),
        Struct(
            "plane_means",
            images=COUNT,
            channels=COUNT,
            height=COUNT,
            width=COUNT,
            x=reads("images:image channels:channel height:row width:pixel"),
            image=STEP,
            channel=STEP,
            row=STEP,
            pixel=STEP,
            out=writes("images channels"),
        ),
        Struct(
            "spread",
            windows=Inner("windows"),
            x_grad=updates(_LARGE),
            out_grad=reads(_SMALL),
            winners=reads(_WINNERS, "uint8", optional=True),
            tiles=FLAG,  # whether every place lies in one window
        ),
    ),
    "row_adder": (
        Struct(
            "add_rows",
            count=COUNT,
            columns=COUNT,
            rows=COUNT,
            out=updates("rows columns"),
            ids=reads("count", "int64"),
            taken=COUNT,  # rows of values
            places=reads("count", "int64", optional=True),  # of the values to add among them
            values=reads("taken columns"),
            where=("given(places) or count <= taken",),
        ),
        Struct(
            "order_rows",
            "sum_rows",
            count=COUNT,
            columns=COUNT,
            rows=COUNT,
            out=writes("rows columns"),
            begin=reads("rows columns", optional=True),  # what is added to, out itself perhaps
            ids=reads("count", "int64"),
            taken=COUNT,  # rows of values
            places=reads("count", "int64"),  # of the values to add among them
            ids_from_end=Whole(0, 1),  # whether those below 0 count from the end
            places_from_end=Whole(0, 1),
            values=reads("taken columns"),
            order=updates("count", "int64"),  # the places, row after row
            ends=updates("rows+1", "int64"),  # where those of each row end there
            bad=RESULT,  # whether an id or a place is out of range
        ),
    ),
    "segments": (
        # 0: sums, 1: maxima, 2: minima of the rows of each group; an empty group gives zeros.
        Struct(
            "reduce",
            kind=Whole(0, 2),
            groups=COUNT,
            columns=COUNT,
            offsets=reads("groups+1", "int64"),  # where groups begin, in order
            rows=reads("end(offsets)-1", "int64", optional=True),  # of x, by default 0, 1, ...
            taken=COUNT,  # rows of x
            x=reads("taken columns"),
            out=writes("groups columns"),
            where=(
                "not given(rows) or end(rows) <= taken",
                "given(rows) or end(offsets) - 1 <= taken",
            ),
        ),
    ),
    "row_products": (
        Struct(
            "rows",
            "panels",
            m=COUNT,
            n=COUNT,
            a=reads("m:down k:right"),
            down=step_of("a"),
            right=step_of("a", -1),
            k=COUNT,
            out=updates("m:out_step n"),
            out_step=step_of("out"),
            begin=reads("m:begin_step n", optional=True),
            begin_step=step_of("begin"),
            each=SOME,  # of the inner dimension in a piece
            count=SOME,
            pieces=Structs("pack", "count"),
            packed=RESULT,  # whether several threads have packed all panels
            where=("(count - 1) * each < k",),
        ),
        # A handle, as of `blas_product`. beta is 0 or 1.
        Struct(
            "small_product",
            a_turned=FLAG,
            b_turned=FLAG,
            m=COUNT,
            n=COUNT,
            k=COUNT,
            a_step=COUNT,
            b_step=COUNT,
            c_step=COUNT,
            alpha=REAL,
            beta=REAL,
        ),
    ),
    "rows": (
        Struct(
            "softmax",
            rows=COUNT,
            columns=COUNT,
            x=reads("rows columns"),
            out=writes("rows columns"),
            logarithm=FLAG,
        ),
        Struct(
            "softmax_grad",
            rows=COUNT,
            columns=COUNT,
            out=reads("rows columns"),
            out_grad=reads("rows columns"),
            x_grad=writes("rows columns"),
            logarithm=FLAG,
        ),
        Struct(
            "cross_entropy",
            samples=COUNT,
            classes=SOME,
            x=reads("samples classes"),
            labels=reads("samples", "int64", optional=True),
            weights=reads("samples classes", optional=True),  # of the classes, without labels
            out=writes("samples"),
            softmax=writes("samples classes", optional=True),
            logs=writes("samples classes", optional=True),  # of the softmax
            ignored=NUMBER,
            bad=RESULT,  # whether a label is no class
            where=("given(labels) != given(weights)",),
        ),
        Struct(
            "cross_entropy_grad",
            samples=COUNT,
            classes=SOME,
            softmax=reads("samples classes"),
            labels=reads("samples", "int64", optional=True),
            weights=reads("samples classes", optional=True),
            out_grad=reads("samples"),
            x_grad=writes("samples classes"),
            ignored=NUMBER,
            bad=RESULT,
            where=("given(labels) != given(weights)",),
        ),
        Struct(
            "log_softmax_pull",
            size=COUNT,
            logs=reads("size"),
            weights=reads("size"),
            out_grad=reads("1"),
            x_grad=writes("size"),
        ),
        Struct(
            "misclassified",
            samples=COUNT,
            classes=SOME,
            label=reads("samples classes"),
            x=reads("samples classes"),
            out=writes("samples"),
            top=SOME,
        ),
        # The sum of all elements over the divisor.
        Struct("mean", size=COUNT, x=reads("size"), out=writes("1"), divisor=SOME),
        # All elements are factor / divisor, times the other number if it is there.
        Struct(
            "fill",
            size=COUNT,
            out=writes("size"),
            factor=REAL,
            divisor=SOME,
            other=reads("1", optional=True),
        ),
        Struct(
            "norm",
            rows=COUNT,
            columns=COUNT,
            x=reads("rows columns"),
            out=writes("rows columns"),
            scale=reads("columns", optional=True),
            bias=reads("columns", optional=True),
            mean=writes("rows", optional=True),
            inverse=writes("rows", optional=True),  # 1 / deviation
            epsilon=REAL,
            centered=FLAG,
        ),
        Struct(
            "norm_grad",
            rows=COUNT,
            columns=COUNT,
            x=reads("rows columns"),
            out_grad=reads("rows columns"),
            x_grad=writes("rows columns", optional=True),
            scale=reads("columns", optional=True),
            mean=reads("rows", optional=True),
            inverse=reads("rows"),
            blocks=SOME,
            sums=writes("blocks 2 columns", optional=True),
        ),
        Struct(
            "moments",
            rows=COUNT,
            columns=COUNT,
            x=reads("rows:x_step columns"),
            x_step=step_of("x"),
            y=reads("rows:y_step columns"),
            y_step=step_of("y"),
            blocks=SOME,
            sums=writes("blocks 2 columns"),
        ),
        Struct(
            "added",
            blocks=SOME,
            columns=COUNT,
            width=SOME,
            sums=reads("blocks 2 columns"),
            first=writes("width", optional=True),
            second=writes("width", optional=True),
            first_factor=REAL,
            second_factor=REAL,
            where=("columns % width == 0",),
        ),
    ),
    "search": (
        Struct(
            "fst",
            start=NUMBER,
            states=COUNT,
            count=COUNT,  # of arcs
            final=reads("states", "float32"),
            begin=reads("states+1", "int64"),
            arcs=reads("count", "Arc"),
        ),
        # A static graph, or two that are composed on the way (`lazy`): look-ahead labels and sums
        # are of the arcs of the second.
        Struct(
            "graph_new",
            lazy=FLAG,
            first=Inner("fst"),
            second=Inner("fst"),
            emitting=reads("first.states", "int32", optional=True),
            epsilons=reads("second.states", "int32", optional=True),
            sets=COUNT,
            interval_begin=reads("sets+1", "int64", optional=True),
            intervals=reads("end(interval_begin)-1 2", "int32", optional=True),
            interval_set=reads("first.states", "int32", optional=True),
            labels=reads("second.count", "int32", optional=True),
            sums=reads("second.count", "float64", optional=True),
            final_label=NUMBER,
            most=COUNT,  # states
            graph=RESULT,  # 0: there is no memory
            where=(
                "lazy or given(emitting)",
                "not lazy or given(epsilons, interval_begin, intervals)",
                "not lazy or given(interval_set, labels, sums)",
                "not lazy or end(interval_set) <= sets",
            ),
        ),
        Struct("graph_free", graph=ADDRESS),
        # The tokens of all frames of an utterance, and how they are pruned.
        Struct(
            "search_new",
            graph=ADDRESS,
            pdf=reads("labels", "int32"),
            labels=COUNT,
            outputs=COUNT,  # of the network
            beam=REAL,
            most=COUNT,
            least=COUNT,
            beam_delta=REAL,
            most_tokens=COUNT,
            lattice_beam=REAL,
            prune_delta=REAL,
            prune_interval=SOME,
            most_arcs=COUNT,
            search=RESULT,  # 0: there is no memory
            where=("end(pdf) <= outputs",),
        ),
        Struct("search_free", search=ADDRESS),
        Struct("search_start", search=ADDRESS, status=RESULT),
        Struct(
            "search_accept",
            search=ADDRESS,
            rows=COUNT,
            outputs=COUNT,  # as of search_new
            likelihoods=reads("rows outputs", "float32"),
            status=RESULT,
            frames=RESULT,
        ),
        Struct("search_prune", search=ADDRESS),
        Struct("search_finalize", search=ADDRESS, status=RESULT),
        Struct("search_best", search=ADDRESS, token=RESULT),
        Struct(
            "search_newest",
            search=ADDRESS,
            count=COUNT,
            costs=writes("count", "float32"),
            finals=writes("count", "float32"),
        ),
        Struct(
            "search_trace",
            search=ADDRESS,
            frame=COUNT,
            token=COUNT,
            most=COUNT,
            status=RESULT,
            count=RESULT,
            path=writes("most", "Traced"),
            frame_reached=RESULT,
            token_reached=RESULT,
        ),
        Struct(
            "search_sizes",
            search=ADDRESS,
            first=COUNT,
            rows=COUNT,
            sizes=writes("rows 4", "int64"),  # tokens, links, links onward, tokens counted
        ),
        Struct(
            "search_copy",
            search=ADDRESS,
            first=COUNT,
            rows=COUNT,
            tokens=COUNT,
            epsilons=COUNT,
            emitting=COUNT,
            all_tokens=writes("tokens", "Token"),
            names=writes("tokens", "int32"),
            links=writes("epsilons", "Link"),
            onward=writes("emitting", "Link"),
            offsets=writes("rows", "float32"),
        ),
    ),
    "team": (
        # A function of an argument, the number of a part and of how many.
        Struct("item", function=ADDRESS, argument=MAYBE),
        Struct(
            "list",
            "opscope_alone",
            "opscope_team",
            "opscope_region",
            count=COUNT,
            items=Structs("item", "count"),
            work=COUNT,  # see constants.py
        ),
        # Functions that read and set the number of threads of a BLAS.
        Struct("opscope_use_blas", get=ADDRESS, set=ADDRESS),
        # What it shall have while nothing runs; 0: C says how many it has then.
        Struct("opscope_blas_threads", number=COUNT),
        Struct("opscope_processor", kinds=RESULT),
        Struct("opscope_tiles", granted=RESULT),
        Struct(
            "opscope_copy",
            rows=COUNT,
            bytes=COUNT,  # of a row
            target=writes("spread(target_rows,rows):target_step bytes:1", "bytes"),
            target_step=STEP,  # in bytes
            target_rows=reads("rows", "int64", optional=True),  # None: all, in their order
            source=reads("spread(source_rows,rows):source_step bytes:1", "bytes"),
            source_step=STEP,
            source_rows=reads("rows", "int64", optional=True),
        ),
        # Places of grids, one after the other.
        Struct(
            "opscope_grids",
            grids=COUNT,
            axes=SOME,
            sizes=reads("grids 1+2*axes", "int64"),  # first place, counts, and steps
            count=COUNT,  # of all places
            places=writes("count", "int64"),
        ),
        # The polynomials of framework/base/sizes/many_dims.py; the first of the numbers is 1.
        Struct(
            "opscope_polynomials",
            count=COUNT,  # of polynomials
            terms=COUNT,
            depth=SOME,  # places of a term
            ends=reads("count", "int64"),  # of the terms of each
            factors=reads("terms", "int64"),
            places=reads("terms depth", "int64"),  # 0: no further one
            atoms=SOME,
            numbers=updates("atoms", "int64"),
            size=COUNT,
            row=reads("size", "int64"),
            sized=COUNT,  # atoms that are numbers of the row, in units
            sized_numbers=reads("sized", "int64"),
            sized_at=reads("sized", "int64"),
            units=reads("sized", "int64"),
            parts=COUNT,
            met=writes("parts", "int64"),  # whether all conditions of a part hold
            fixed=COUNT,  # numbers of the row that a part is for
            fixed_at=reads("fixed", "int64"),
            fixed_values=reads("fixed", "int64"),
            fixed_of=reads("fixed", "int64"),
            quotients=COUNT,  # atoms that are quotients of two polynomials, rounded down
            quotient_numbers=reads("quotients", "int64"),
            quotient_of=reads("quotients", "int64"),
            rests=reads("quotients", "int64"),
            divisors=reads("quotients", "int64"),
            conditions=COUNT,
            first_condition=COUNT,
            signs=reads("conditions", "int64"),
            condition_of=reads("conditions", "int64"),
            wanted=COUNT,
            first_wanted=COUNT,
            values=writes("wanted", "int64"),
            wrong=RESULT,  # whether one leaves 64 bits, or a number of the row is no whole unit
            where=(
                "end(ends) <= terms + 1",
                "end(places) <= atoms",
                "end(sized_numbers) <= atoms",
                "end(sized_at) <= size",
                "end(fixed_at) <= size",
                "end(fixed_of) <= parts",
                "end(quotient_numbers) <= atoms",
                "end(quotient_of) <= parts",
                "end(rests) <= count",
                "end(divisors) <= count",
                "first_condition + conditions <= count",
                "end(condition_of) <= parts",
                "first_wanted + wanted <= count",
            ),
        ),
        # Rows of a table, by their numbers.
        Struct(
            "opscope_take",
            count=COUNT,
            ids=reads("count:ids_step", "int64"),
            ids_step=STEP,
            rows=COUNT,  # of the table
            bytes=COUNT,  # of a row
            source=reads("rows:source_step bytes:1", "bytes"),
            source_step=STEP,  # in bytes
            target=writes("count bytes", "bytes"),
            gaps=FLAG,  # whether numbers that are no rows give zeros
            bad=RESULT,  # else whether there is one
        ),
        # A product c = a b, which knows how its arrays lie; a row is copied to each of c before it.
        Struct(
            "gemm_part",
            function=ADDRESS,
            handle=ADDRESS,
            a=reads("1:0", "bytes"),
            b=reads("1:0", "bytes"),
            c=updates("rows:step bytes:1", "bytes"),
            bias=reads("bytes", "bytes", optional=True),
            rows=COUNT,
            bytes=COUNT,  # of a row
            step=STEP,  # in bytes
        ),
        Struct("opscope_parts", count=COUNT, parts=Structs("gemm_part", "count")),
        # Lists that run side by side, each on one thread.
        Struct("opscope_beside", count=COUNT, lists=Structs("list", "count")),
        # Items for each block of rows, all for one before the next.
        Struct("opscope_blocks", blocks=SOME, count=COUNT, items=Structs("item", "count")),
    ),
    "tile_convolution": (
        # Filters in tiles, 32 outputs each.
        Struct(
            "pack_filters",
            outs=SOME,
            channels=SOME,
            kernel_down=SOME,
            kernel_right=SOME,
            w=reads("outs:out_step channels:in_step kernel_down:down kernel_right:right"),
            out_step=STEP,
            in_step=STEP,
            down=STEP,
            right=STEP,
            panels=writes(_FILTER_TILES),
        ),
        # Positions are pixels of an image with zeros around it, `step` apart; a row of the result
        # has `across` of them, and begins `pitch` after the one before. A group is rows of a tile.
        Struct(
            "tile_conv",
            "split_image",
            images=COUNT,
            channels=SOME,
            height=COUNT,
            width=COUNT,
            x=reads("images:x_image height:x_row width:x_pixel channels:1"),
            x_image=STEP,
            x_row=STEP,
            x_pixel=STEP,
            wide=SOME,  # with the zeros
            top=NUMBER,  # where the image begins
            left=NUMBER,
            high=SOME,  # of the result
            across=SOME,
            outs=SOME,
            out=writes("images:out_image high:out_row across:out_pixel outs:1"),
            # As in conv.
            other=reads("images:out_image high:out_row across:out_pixel outs:1", optional=True),
            out_image=STEP,
            out_row=STEP,
            out_pixel=STEP,
            kernel_down=SOME,
            kernel_right=SOME,
            tap_down=COUNT,  # pixels from tap to tap
            tap_right=COUNT,
            group=Whole(1, 16),
            per_line=SOME,  # groups
            lines=SOME,
            line_step=COUNT,  # pixels
            pitch=SOME,  # positions
            step=SOME,  # pixels
            block=SOME,  # lines that are split and multiplied at a time
            shared=FLAG,  # whether all images are split before, and threads take panels
            threads=SOME,  # parts at once, that have memory
            panels=reads(_FILTER_TILES),
            bias=reads("whole(outs,lanes)", optional=True),
            factors=reads("whole(outs,lanes)", optional=True),  # before the bias is added
            activation=Inner("activation"),
            epilogue=Structs("epilogue", "1", optional=True),
            tiles=updates("copies room", "bytes"),
            copies=SOME,
            room=COUNT,
            memory=updates("threads made", optional=True),  # of what the epilogue reads
            made=COUNT,
            sums=updates("threads room_of_sums"),
            room_of_sums=COUNT,
            where=(
                "block <= lines",
                "not shared or block == lines and copies >= images",
                "shared or copies >= threads",
                "((block-1)*line_step + (per_line*group-1)*step + (kernel_down-1)*tap_down"
                " + (kernel_right-1)*tap_right + 1) * ((channels+31)//32) * pixel"
                " + (channels+31)//32*8 <= room",
                "given(epilogue) == given(memory)",
                "not given(other) or not (given(epilogue) or outs % lanes)",
                "not given(memory) or block*per_line*group * (32 if shared else outs) <= made",
                "room_of_sums >= 2048",  # of a pair of groups, and of the one before
                "(channels+31)//32*kernel_down*kernel_right <= piece"
                " or (block*per_line+1)//2*1024 <= room_of_sums",
            ),
        ),
    ),
    "transducers": (
        # Which states are on a path from the start to an end.
        Struct("kept", fst=Inner("fst"), kept=writes("fst.states", "uint8"), status=RESULT),
        Struct("memory_free", memory=ADDRESS),
        Struct(
            "composed",
            first=Inner("fst"),
            second=Inner("fst"),
            connected=FLAG,  # without states that are on no path
            **_MADE,
            status=RESULT,
        ),
        # Where the status is WANTED, it asks what `symbol` gives in the state `here` of the
        # context: the label, the state of the context (-1: none), and whether a path may end there.
        Struct(
            "context_composed",
            fst=Inner("fst"),
            most=COUNT,  # arcs
            label=NUMBER,
            there=NUMBER,
            ends=FLAG,
            here=RESULT,
            symbol=RESULT,
            work=RESULT,  # goes on when it is called again
            **_MADE,
            status=RESULT,
        ),
    ),
    "vector_products": (
        Struct(
            "vector",
            "turn",
            k=COUNT,
            n=COUNT,
            x=reads("k"),
            w=reads("k:step n"),
            step=COUNT,
            out=updates("n"),
            begin=reads("n", optional=True),
            alpha=REAL,
            high=SOME,  # rows of w in a chunk
            sums=writes("-(-k//high) n"),
            backward=RESULT,  # from the last chunk to the first; turned before each run
        ),
    ),
    "winograd": (
        Struct(
            "filters",
            outs=SOME,
            channels=SOME,
            w=reads("outs:out_step channels:in_step 3:down 3:right"),
            out_step=step_of("w", 0),
            in_step=step_of("w", 1),
            down=step_of("w", 2),
            right=step_of("w", 3),
        ),
        Struct(
            "spread_filters",
            filters=Inner("filters"),
            panels=writes("16 filters.channels whole(filters.outs,lanes)"),
        ),
        # Tiles are 2x2 pixels of the result; 16 numbers of each channel are multiplied for one.
        Struct(
            "winograd",
            filters=Inner("filters"),
            panels=reads("16 filters.channels whole(filters.outs,lanes)"),
            images=SOME,
            height=COUNT,
            width=COUNT,
            x=reads("images:x_image height:x_row width:x_pixel filters.channels:1"),
            x_image=STEP,
            x_row=STEP,
            x_pixel=STEP,
            top=NUMBER,  # zeros before the image
            left=NUMBER,
            high=SOME,  # of the result
            across=SOME,
            out=writes("images:out_image high:out_row across:out_pixel filters.outs:1"),
            # As in conv.
            other=reads(
                "images:out_image high:out_row across:out_pixel filters.outs:1", optional=True
            ),
            out_image=STEP,
            out_row=STEP,
            out_pixel=STEP,
            bias=reads("whole(filters.outs,lanes)", optional=True),
            factors=reads("whole(filters.outs,lanes)", optional=True),  # before the bias is added
            activation=Inner("activation"),
            epilogue=Structs("epilogue", "1", optional=True),
            block=SOME,  # groups of `high` tiles that are multiplied at a time
            slices=SOME,  # parts of the outputs
            threads=SOME,  # parts at once, that have memory
            memory=updates("threads room"),
            room=COUNT,
            where=(
                "block * group <= most",
                "16*(block*group*(whole(filters.channels,lanes)+panel) + 2*lanes)"
                " + whole(filters.channels,lanes)"
                " + given(epilogue)*4*block*group*filters.outs <= room",
                "not given(other) or not (given(epilogue) or filters.outs % lanes)",
            ),
        ),
    ),
}

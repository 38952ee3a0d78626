"""Ranks with a GPU each: arrays there are exchanged by NCCL, all else by the ranks' processes."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np

from ..base.backend import Place, on_device
from ..base.communicator import Communicator, Request, SharedArray, check_root
from ..base.dtypes import HALVES
from ..base.errors import DeviceError, RanksError

_PAUSE = 50e-6
_ID_LENGTH = 128
"""Numbers in the id of an NCCL communicator (NCCL_UNIQUE_ID_BYTES)."""


class NcclCommunicator(Communicator):
    """Ranks of `host` whose GPU arrays travel by NCCL; it is what CuPy brings (`cupy.cuda.nccl`).

    Sums run on a stream of their own, beside the operators that come after `start_all_reduce`.
    NCCL adds in an order of its own: all ranks get the same bits, but not always those that other
    communicators give. While a rank waits it hears from `host` that another has failed.

    Args:
        host: exchanges the id of the NCCL communicator, and arrays of the host; MpiCommunicator().
        place: the GPU of this rank; ranks of one machine have different ones.

    Raises:
        DeviceError: CuPy has no NCCL, or there is no such GPU.
    """

    kind = "nccl"

    def __init__(self, host: Communicator, place: Place) -> None:
        super().__init__(host.rank, host.size)
        if place.kind == "cpu":
            raise DeviceError("NCCL wants a GPU: NcclCommunicator(MpiCommunicator(), GPUPlace(0))")
        self._host = host
        self._cuda = place.xp.cuda
        nccl = getattr(self._cuda, "nccl", None)
        if nccl is None or not getattr(nccl, "available", False):
            raise DeviceError(
                "this CuPy has no NCCL: install nvidia-nccl-cu12 (or -cu13) beside CuPy, or use"
                " MpiCommunicator, which sends arrays of GPUs through the host"
            )
        self._nccl: Any = nccl
        self._types = {
            np.dtype(name): getattr(nccl, f"NCCL_{name.upper()}")
            for name in ("int8", "uint8", "int32", "uint32", "int64", "uint64")
        } | {
            np.dtype(name): getattr(nccl, f"NCCL_{name.upper()}")
            for name in ("float16", "float32", "float64")
        }
        bfloat16 = [dtype for dtype in HALVES if dtype.name == "bfloat16"]
        number = getattr(nccl, "NCCL_BFLOAT16", None)  # None: a CuPy that has no such arrays
        self._types |= {dtype: number for dtype in bfloat16 if number is not None}
        with on_device(place):
            own = nccl.get_unique_id() if self.rank == 0 else ()
            # The id comes from rank 0 alone; it cannot travel by the communicator that it makes.
            shared_id = host.exchange(json.dumps([int(one) for one in own]).encode())[0]
            self._comm = nccl.NcclCommunicator(self.size, tuple(json.loads(shared_id)), self.rank)
            # Non-blocking, or it would wait for the default stream, and sums never run beside
            # operators.
            self._stream = self._cuda.Stream(non_blocking=True)
        self._channels: dict[tuple[int, int], tuple[Any, Any]] = {}
        self._under_way: list[tuple[Any, Any]] = []  # events and arrays that were sent to one rank

    def start_all_reduce(self, array: Any) -> Request:
        if isinstance(array, np.ndarray):
            return self._by_host().start_all_reduce(array)
        kind, stream = self._begin(array)
        pointer = array.data.ptr
        total = self._nccl.NCCL_SUM
        self._comm.allReduce(pointer, pointer, array.size, kind, total, stream)
        return self._request()

    def start_reduce_scatter(self, array: Any, out: Any) -> Request:
        if isinstance(array, np.ndarray):
            return self._by_host().start_reduce_scatter(array, out)
        kind, stream = self._begin(array, out)
        total = self._nccl.NCCL_SUM
        self._comm.reduceScatter(array.data.ptr, out.data.ptr, out.size, kind, total, stream)
        return self._request()

    def all_gather(self, array: Any, out: Any) -> None:
        if isinstance(array, np.ndarray):
            self._by_host().all_gather(array, out)
            return
        _, stream = self._begin(array, out, moves=True)
        kind = self._nccl.NCCL_UINT8
        self._comm.allGather(array.data.ptr, out.data.ptr, array.nbytes, kind, stream)
        self._request().wait()

    def broadcast(self, array: Any, root: int = 0) -> None:
        check_root(root, self)
        if isinstance(array, np.ndarray):
            self._by_host().broadcast(array, root)
            return
        _, stream = self._begin(array, moves=True)
        pointer = array.data.ptr
        kind = self._nccl.NCCL_UINT8
        self._comm.broadcast(pointer, pointer, array.nbytes, kind, root, stream)
        self._request().wait()

    def exchange(self, data: bytes) -> list[bytes]:
        return self._by_host().exchange(data)

    def send(self, array: Any, to: int) -> None:
        check_root(to, self)
        if isinstance(array, np.ndarray):
            self._by_host().send(array, to)
            return
        self._under_way = [one for one in self._under_way if not one[0].done]
        comm, stream = self._channel(self.rank, to)
        # A copy on this stream; the memory stays until the other rank has all of it.
        own = array.copy(order="C")
        stream.wait_event(self._cuda.get_current_stream().record())
        comm.send(own.data.ptr, own.nbytes, self._nccl.NCCL_UINT8, 1, stream.ptr)
        self._under_way.append((stream.record(), own))

    def receive(self, out: Any, source: int) -> None:
        check_root(source, self)
        if isinstance(out, np.ndarray):
            self._by_host().receive(out, source)
            return
        comm, stream = self._channel(source, self.rank)
        own = out if out.flags.c_contiguous else out.copy(order="C")
        stream.wait_event(self._cuda.get_current_stream().record())
        comm.recv(own.data.ptr, own.nbytes, self._nccl.NCCL_UINT8, 0, stream.ptr)
        self._request(stream).wait()
        if own is not out:
            out[...] = own

    def _channel(self, source: int, to: int) -> tuple[Any, Any]:
        """NCCL's communicator of two ranks, in which `source` is the first, and its stream.

        One for each direction: a stream runs one transfer after the other, and two ranks that send
        to each other on one stream would wait for each other.
        """
        if (source, to) not in self._channels:
            number = int(self.rank == to)
            host = self._by_host()
            shared = np.array(() if number else self._nccl.get_unique_id(), np.int64)
            if number:
                shared = np.empty(_ID_LENGTH, np.int64)
                host.receive(shared, source)
            else:
                host.send(shared, to)
            comm = self._nccl.NcclCommunicator(2, tuple(shared.tolist()), number)
            self._channels[source, to] = comm, self._cuda.Stream(non_blocking=True)
        return self._channels[source, to]

    def share(self, array: np.ndarray) -> SharedArray:
        return self._by_host().share(array)

    def check(self) -> None:
        self._by_host().check()

    def fail(self, error: BaseException) -> None:
        self._by_host().fail(error)
        for comm in (self._comm, *(comm for comm, _ in self._channels.values())):
            comm.abort()  # otherwise the GPU waits for the others for ever

    def close(self) -> None:
        self._host.close()

    def _by_host(self) -> Communicator:
        self._host.operator = self.operator
        return self._host

    def _begin(self, *arrays: Any, moves: bool = False) -> tuple[int, int]:
        """NCCL's number for the arrays' dtype, and the stream, which waits for what made them.

        `moves`: bytes are sent, whatever they mean: the dtype may be unknown to NCCL.
        """
        for array in arrays:
            if not array.flags.c_contiguous:
                raise RanksError(
                    f"NCCL wants a contiguous array, not one of strides {array.strides}"
                )
        kind = self._types.get(arrays[0].dtype)
        if kind is None and not moves:
            raise RanksError(f"NCCL exchanges no {arrays[0].dtype}")
        self._stream.wait_event(self._cuda.get_current_stream().record())
        return kind or 0, self._stream.ptr

    def _request(self, stream: Any = None) -> Request:
        """What waits for the work that a stream has so far, by default the stream of sums."""
        event = (stream or self._stream).record()

        def finish() -> None:
            # Not `synchronize`, which cannot be interrupted: a rank must hear that another has
            # failed.
            while not event.done:
                self.check()
                time.sleep(_PAUSE)
            self._cuda.get_current_stream().wait_event(event)

        return Request(finish)

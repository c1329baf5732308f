"""Two engines on loopback: their handshake, and a request's steps on both.

Agents have no progress thread, so whoever waits polls every rank of both engines.
"""

import logging
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from nixl_engine import HOST, Blocks, Engine
from nixl_models import Layers
from vllm.distributed.kv_transfer.kv_connector.v1.nixl import base_worker, push_worker
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import NixlConnectorMetadata

REQUEST = "request"
PREFILL_BLOCKS: Blocks = ([1, 3],)
DECODE_BLOCKS: Blocks = ([2, 1],)
SECONDS = 60
"""How long a handshake or a request may take: much, other work may share the machine."""

pull_and_push = pytest.mark.parametrize("push", [False, True], ids=["pull", "push"])


def prefill(layers: Layers, tp: int, **options: Any) -> Engine:
    return Engine("kv_producer", layers, tp, **options)


def decode(layers: Layers, tp: int, **options: Any) -> Engine:
    return Engine("kv_consumer", layers, tp, **options)


@contextmanager
def pair(*engines: Engine) -> Iterator[None]:
    """Shut the engines down in the end."""
    with ExitStack() as stack:
        for engine in engines:
            stack.callback(engine.shutdown)
        yield


def connect(local: Engine, remote: Engine, **kind: Any) -> None:
    """Every local rank does its real handshake over the real side channel."""
    for rank in range(local.tp):
        for stage in range(local.pp):
            handshake(local.worker(rank, stage), remote, **kind)


def handshake(worker: Any, remote: Engine, **kind: Any) -> None:
    """One rank's handshake; an assertion without a text is given the line that made it."""
    future = worker._ensure_handshake(remote.engine_id, HOST, remote.port, remote.tp, pp_size=remote.pp, **kind)
    try:
        if future is not None:
            future.result(SECONDS)
    except AssertionError as error:
        if str(error):
            raise
        line = traceback.extract_tb(error.__traceback__)[-1].line
        raise AssertionError(f"bare assertion in the handshake: {line}") from error


def transfer(
    prefill: Engine, decode: Engine, prefill_blocks: Blocks = PREFILL_BLOCKS, decode_blocks: Blocks = DECODE_BLOCKS
) -> None:
    """Fill a request's blocks and move them to decode, as both engines' steps do.

    Returns when every decode rank has its blocks and every prefill rank was told that
    it may free them.
    """
    prefill.fill(prefill_blocks)
    if prefill.push:
        connect(prefill, decode)
        # A rank written to for another rank's registration must know the writer.
        connect(decode, prefill, notif_agents_only=True)
    else:
        connect(decode, prefill)
    work = {connector: _sends(prefill, prefill_blocks) for connector in prefill.connectors.values()}
    work |= {
        connector: _receives(prefill, decode, prefill_blocks, decode_blocks) for connector in decode.connectors.values()
    }
    with _errors(prefill, decode) as errors:
        _run(work, errors)


def registration(prefill: Engine, decode: Engine, blocks: Blocks) -> dict[str, Any]:
    """What a decode rank sends to the prefill ranks that shall write to it."""
    return {
        "request_id": REQUEST,
        "decode_engine_id": decode.engine_id,
        "decode_host": HOST,
        "decode_port": decode.port,
        "decode_tp_size": decode.tp,
        "local_block_ids": blocks,
        "remote_engine_id": prefill.engine_id,
        "remote_host": HOST,
        "remote_port": prefill.port,
        "remote_tp_size": prefill.tp,
        "remote_pp_size": prefill.pp,
    }


def _sends(prefill: Engine, blocks: Blocks) -> NixlConnectorMetadata:
    """A prefill rank's step in which the request has been computed."""
    work = NixlConnectorMetadata()
    work.reqs_in_batch.add(REQUEST)
    work.reqs_to_send[REQUEST] = time.perf_counter() + 2 * SECONDS
    if prefill.push:
        work.push_finished_blocks[REQUEST] = blocks
    return work


def _receives(
    prefill: Engine, decode: Engine, prefill_blocks: Blocks, decode_blocks: Blocks
) -> NixlConnectorMetadata:  # fmt: skip
    """A decode rank's step in which the request is to be received."""
    work = NixlConnectorMetadata()
    params = {
        "remote_block_ids": () if decode.push else prefill_blocks,
        "remote_engine_id": prefill.engine_id,
        "remote_request_id": REQUEST,
        "remote_host": HOST,
        "remote_port": prefill.port,
        "tp_size": prefill.tp,
        "pp_size": prefill.pp,
    }
    work.add_new_req_to_recv(REQUEST, decode_blocks, params, (0,) * len(decode_blocks), True)
    if decode.push:
        work.push_registrations[REQUEST] = registration(prefill, decode, decode_blocks)
    return work


def _run(work: dict[Any, NixlConnectorMetadata], errors: list[BaseException]) -> None:
    """Step every connector until each has finished its part of the request."""
    waiting = {connector for connector, step in work.items() if not _finished(connector, step)}
    deadline = time.monotonic() + SECONDS
    while waiting and not errors and time.monotonic() < deadline:
        # All of them: a rank that is done may still have to answer another one.
        waiting -= {connector for connector in work if _finished(connector, NixlConnectorMetadata())}
        time.sleep(0.001)
    if errors:
        raise errors[0]
    assert not waiting, f"not finished: {len(waiting)} of the ranks of both engines"


def _finished(connector: Any, work: NixlConnectorMetadata) -> bool:
    """One engine step: hand over work, see whether the request is finished."""
    connector.bind_connector_metadata(work)
    connector.start_load_kv(None)
    sent, received = connector.get_finished(set())
    return REQUEST in {*(sent or ()), *(received or ())}


@contextmanager
def _errors(*engines: Engine) -> Iterator[list[BaseException]]:
    """Collect what worker threads log of their failures: they go on and nobody else is told."""
    errors: list[BaseException] = []
    others = set.intersection(*({*engine.older_threads} for engine in engines)) - {threading.main_thread()}

    def note(record: logging.LogRecord) -> None:
        if record.exc_info and threading.current_thread() not in others:
            errors.append(record.exc_info[1])

    handler = logging.Handler(logging.ERROR)
    handler.emit = note
    loggers = base_worker.logger, push_worker.logger
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield errors
    finally:
        for logger in loggers:
            logger.removeHandler(handler)

"""Computes posts that arrive in batches, and refuses those that would wait for too long."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import redis
from fastapi import HTTPException, Request

from .live_classifier import LivePost
from .metrics import ServerMetrics
from .request_logs import REQUEST_ID


MAX_BATCH = 32  # posts in a batch
MAX_TOKENS = 2048  # tokens of a batch; longer histories are read in several, so that no other post waits for them
MAX_WAITING = 256  # waiting posts; more are refused, so that no client waits long for an answer
MAX_WAITING_TOKENS = 65_536  # tokens of waiting posts and their histories
AGAIN = {"Retry-After": "1"}  # seconds


@dataclass(eq=False)
class Job:
    function: Callable[[list], list]  # computes the results of items
    item: Any
    timeline_id: str
    tokens: int  # what is left to read
    request: Request | None  # whoever waits for the answer; a job without is computed in any case
    answer: asyncio.Future
    request_id: str = field(default_factory=REQUEST_ID.get)


class Batches:
    """
    Computes jobs in batches: those that arrive during a batch form the next one. Batches run one at a time, in one
    thread. The timeline that has waited for longest comes first, then those with the fewest tokens to read: a short
    post waits for the batch that is computed, and a long one is read in parts, at the latest when it is the oldest.
    Jobs of one timeline keep their order, so that a timeline stays forgotten even if its posts were waiting.
    """

    def __init__(self, metrics: ServerMetrics):
        self.metrics = metrics
        self.waiting: list[Job] = []  # in order of arrival
        self.arrived = asyncio.Event()
        self.thread = ThreadPoolExecutor(1)

    async def answer(
        self,
        function: Callable[[list], list],
        item: Any,
        timeline_id: str,
        tokens: int = 0,
        request: Request | None = None,
    ) -> Any:
        num_waiting = sum(job.tokens for job in self.waiting)
        if len(self.waiting) >= MAX_WAITING or self.waiting and num_waiting + tokens > MAX_WAITING_TOKENS:
            self.metrics.posts.labels("busy").inc()
            raise HTTPException(503, "Too many posts are waiting: send this one again.", AGAIN)
        job = Job(function, item, timeline_id, tokens, request, asyncio.get_running_loop().create_future())
        self.waiting.append(job)
        self.arrived.set()
        return await job.answer

    async def serve(self):
        while True:
            await self.drop_abandoned()
            batch = self.next_batch()
            if not batch:
                self.arrived.clear()
                await self.arrived.wait()
                continue
            self.waiting = [job for job in self.waiting if job not in batch]
            self.metrics.batch.observe(len(batch))
            for function in dict.fromkeys(job.function for job in batch):
                await self.compute(function, [job for job in batch if job.function == function])
            # Those with something left to read have waited for longer than those that have just arrived.
            self.waiting[:0] = [job for job in batch if not job.answer.done()]

    async def drop_abandoned(self):
        """Drops jobs whose client has gone."""
        for job in self.waiting:
            if job.request is not None and not job.answer.done() and await job.request.is_disconnected():
                self.metrics.posts.labels("gone").inc()
                job.answer.set_exception(HTTPException(499, "The client has gone."))
        self.waiting = [job for job in self.waiting if not job.answer.done()]

    def next_batch(self) -> list[Job]:
        """Returns jobs of about `MAX_TOKENS` tokens; each job may use half of them."""
        timelines: dict[str, list[Job]] = {}
        for job in self.waiting:
            timelines.setdefault(job.timeline_id, []).append(job)
        oldest, *others = timelines.values() if timelines else [[]]
        batch: list[Job] = []
        tokens = 0
        for jobs in [oldest, *sorted(others, key=lambda jobs: jobs[0].tokens)]:
            for job in takewhile(lambda job, jobs=jobs: job.function == jobs[0].function, jobs):
                if len(batch) == MAX_BATCH or tokens >= MAX_TOKENS:
                    return batch
                batch.append(job)
                tokens += min(job.tokens, MAX_TOKENS // 2)
        return batch

    async def compute(self, function: Callable[[list], list], jobs: list[Job]):
        items = [job.item for job in jobs]
        context = copy_context()
        context.run(REQUEST_ID.set, ",".join(dict.fromkeys(job.request_id for job in jobs)))
        try:
            results = await asyncio.get_running_loop().run_in_executor(self.thread, context.run, function, items)
        except Exception as problem:
            if len(jobs) > 1 and not isinstance(problem, (redis.ConnectionError, redis.TimeoutError)):
                # Each job by itself, so that a bad one does not cost the others their answers.
                for job in jobs:
                    await self.compute(function, [job])
                return
            self.metrics.posts.labels("failed").inc(len(jobs))
            results = [problem] * len(jobs)
        for job, result in zip(jobs, results, strict=True):
            if job.answer.done():  # its client has gone
                continue
            if isinstance(result, LivePost):
                job.item, job.tokens = result, result.num_tokens
            elif isinstance(result, Exception):
                job.answer.set_exception(result)
            else:
                job.answer.set_result(result)

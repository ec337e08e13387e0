"""
A service that classifies posts as they arrive. Read it, copy it, change it.

    pip install -c constraints.txt ".[live]"
    redis-server --appendonly yes
    OMP_NUM_THREADS=1 python examples/server.py --model outputs/my_model

POST /score     {"timeline_id": "ann", "post_id": "17", "text": "...", "timestamp": "2024-05-01T09:00:00Z"}
POST /explain   {"text": ["...", "..."], "timestamp": ["...", "..."]}: the result of the pipeline's `explain`
POST /forget    {"timeline_id": "ann"}
GET  /health    200 while posts can be scored, with the results of the model's test
GET  /          a description for people; /openapi.json is for programs
GET  /metrics   for Prometheus

A model that reads who speaks also needs the `speaker` of each post, null where that is not known. One that reads known
states takes the `state` of each post, for later ones, and the `previous_state`, where it has become known since.

Several models may share a Redis: docs/update_a_model.md brings a new one into service. docs/watch.md has the metrics,
and monitoring/ a dashboard and alert rules for them.

Send a post again, with the same `post_id`, until you get an answer: it is read once. Start several servers on
different ports behind a proxy. The proxy must authenticate clients, because the server does not.
"""

import argparse
import asyncio
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass
from html import escape
from itertools import takewhile
from typing import Annotated, Any, Literal

import redis
import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictStr
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from modeling_tempoformer import StreamClassificationPipeline
from modeling_tempoformer.evaluation.report import read_test, test_summary
from modeling_tempoformer.names_tempoformer import read_name
from modeling_tempoformer.serving.live_classifier import (
    CONTEXTS,
    MISSING,
    LiveClassifier,
    LivePost,
    RefusedPost,
    Result,
    check_id,
)
from modeling_tempoformer.serving.metrics import LiveMetrics
from modeling_tempoformer.serving.redis_store import Forgotten, RedisStore
from modeling_tempoformer.timeline_tempoformer import Timeline


MAX_BATCH = 32  # posts in a batch
MAX_TOKENS = 2048  # tokens of a batch; longer histories are read in several, so that no other post waits for them
MAX_POST_TOKENS = 16_384  # tokens of a post and its history, read in several batches
MAX_EXPLAINED_TOKENS = 4096  # tokens of a timeline to explain
MAX_WAITING = 256  # waiting posts; more are refused, so that no client waits long for an answer
MAX_WAITING_TOKENS = 65_536  # tokens of waiting posts and their histories
MAX_POSTS = 100  # posts of a history, and of a timeline to explain
MAX_CHARACTERS = 10_000  # characters of a text
MAX_BODY = 256_000  # bytes
MAX_IDLE_SECONDS = 90 * 86400  # after which a timeline is forgotten
AGAIN = {"Retry-After": "1"}  # seconds

PAGE = """<!DOCTYPE html>
<html lang="en">
<title>Posts as they arrive</title>
<meta name="viewport" content="width=device-width">
<h1>Posts as they arrive</h1>
<p>This server gives each post of a timeline a label, from the post and those before it.</p>
<p><strong>How good the model is:</strong> {said}</p>
<pre>{paths}</pre>
<p>For programs: <a href="openapi.json">openapi.json</a>. Predictions about people are sensitive: a person must check
each.</p>
</html>
"""

logger = logging.getLogger("uvicorn.error")

METRICS = CollectorRegistry()
ProcessCollector(registry=METRICS)
POSTS = Counter("posts", "Posts by outcome", ["outcome"], registry=METRICS)
SECONDS = Histogram("score_seconds", "Seconds from a post's arrival to its answer", registry=METRICS)
BATCH = Histogram("batch_posts", "Posts of a batch", buckets=[2**n for n in range(8)], registry=METRICS)
WAITING = Gauge("waiting_posts", "Posts that wait for a batch", registry=METRICS)

Id = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]
# Strict, because `true` would be 1 second otherwise.
Time = StrictFloat | StrictStr | None
Speaker = Annotated[str, Field(max_length=200)] | None
KnownState = StrictFloat | Annotated[StrictStr, Field(max_length=200)] | None


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class EarlierPost(Body):
    text: Text
    timestamp: Time = None
    # Without a default in the description for programs: null is a speaker who is not known.
    speaker: Speaker = Field(default_factory=lambda: MISSING)
    state: KnownState = Field(None, description="Its state, which only later posts read.")


class NewPost(EarlierPost):
    timeline_id: Id
    post_id: Id
    previous_state: KnownState = Field(
        None, description="The state of the speaker's last post, where it has become known since."
    )
    history: list[EarlierPost] = Field([], max_length=MAX_POSTS)


class State(BaseModel):
    label: str
    score: float = Field(description="The probability of the state.")
    probabilities: dict[str, float] = Field(description="The probability of each state.")
    mean: float | None = Field(None, description="The mean of the states, if they are numbers.")


class Answer(BaseModel):
    watched_probability: float | None = Field(
        None, description="The probability of the class to watch, if the model has one."
    )
    alarm: bool | None = Field(
        None,
        description="Whether watched_probability is at least watched_threshold; without such a number, whether the "
        "label is the class to watch. With a policy, whether it raises an alarm.",
    )
    alarm_event: Literal["raised", "held back", "taken back"] | None = Field(
        None, description="By the policy of alarms, if the model has one."
    )
    watched_threshold: float | None = Field(None, description="The probability from which on a post is an alarm.")
    watched: str | None = Field(None, description="The class to watch.")
    label: str
    score: float = Field(description="The probability of the label.")
    probabilities: dict[str, float] = Field(description="The probability of each class.")
    state: State | None = Field(None, description="The state of the post, if the model has learned states.")
    thresholds: dict[str, float] | None = Field(
        description="If the model has thresholds, the label is the class with the largest probability / threshold; "
        "otherwise it is the most probable class."
    )
    reason: str | None = Field(
        None,
        description="Why the label is not the most probable class, or why alarm and label say different things.",
    )
    stream_length: int = Field(description="The number of posts that were read, including this one.")
    context: Literal[*CONTEXTS] = Field(description="The source of the earlier posts.")


class DueAlarm(BaseModel):
    timeline_id: str
    post_id: str | None = Field(description="The newest post of the timeline.")
    since: float = Field(description="The time of the post that the alarm waited for, in seconds since 1970.")
    due: float = Field(description="When the alarm was to be raised.")


class WholeTimeline(Body):
    text: list[Text] = Field(max_length=MAX_POSTS)
    timestamp: list[Time] | None = None
    speaker: list[Speaker] | None = None
    state: list[KnownState] | None = None


class Person(Body):
    timeline_id: Id


class Deleted(BaseModel):
    forgotten: bool = Field(description="Whether anything of the timeline was there.")
    models: list[str] = Field(description="The models whose memory of the timeline was deleted.")
    texts: bool = Field(description="Whether kept texts were deleted.")


@dataclass(eq=False)
class Job:
    function: Callable[[list], list]  # computes the results of items
    item: Any
    timeline_id: str
    tokens: int  # what is left to read
    request: Request | None  # whoever waits for the answer; a job without is computed in any case
    answer: asyncio.Future


class Batches:
    """
    Computes jobs in batches: those that arrive during a batch form the next one. Batches run one at a time, in one
    thread. The timeline that has waited for longest comes first, then those with the fewest tokens to read: a short
    post waits for the batch that is computed, and a long one is read in parts, at the latest when it is the oldest.
    Jobs of one timeline keep their order, so that a timeline stays forgotten even if its posts were waiting.
    """

    def __init__(self):
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
            POSTS.labels("busy").inc()
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
            BATCH.observe(len(batch))
            for function in dict.fromkeys(job.function for job in batch):
                await self.compute(function, [job for job in batch if job.function == function])
            # Those with something left to read have waited for longer than those that have just arrived.
            self.waiting[:0] = [job for job in batch if not job.answer.done()]

    async def drop_abandoned(self):
        """Drops jobs whose client has gone."""
        for job in self.waiting:
            if job.request is not None and not job.answer.done() and await job.request.is_disconnected():
                POSTS.labels("gone").inc()
                job.answer.set_exception(HTTPException(499, "The client has gone."))
        self.waiting = [job for job in self.waiting if not job.answer.done()]

    def next_batch(self) -> list[Job]:
        """Returns jobs of about `MAX_TOKENS` tokens, of which each may use half."""
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
        try:
            results = await asyncio.get_running_loop().run_in_executor(self.thread, function, items)
        except Exception as problem:
            if len(jobs) > 1 and not isinstance(problem, (redis.ConnectionError, redis.TimeoutError)):
                # Each job by itself, so that a bad one does not cost the others their answers.
                for job in jobs:
                    await self.compute(function, [job])
                return
            POSTS.labels("failed").inc(len(jobs))
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


def refused(status: int, sentence: str) -> HTTPException:
    """Counts a post that is refused. Returns the answer."""
    POSTS.labels("refused").inc()
    return HTTPException(status, sentence)


def create_app(model: str, redis_url: str, keep_texts: int = 0) -> FastAPI:
    pipe = StreamClassificationPipeline(
        model=AutoModelForSequenceClassification.from_pretrained(model),
        tokenizer=AutoTokenizer.from_pretrained(model),
    )
    # Its own tokenizer, because `explain` runs in another thread than the reading of posts.
    explainer = StreamClassificationPipeline(model=pipe.model, tokenizer=AutoTokenizer.from_pretrained(model))
    client = redis.Redis.from_url(redis_url, socket_timeout=5, socket_connect_timeout=5)
    store = RedisStore(client, MAX_IDLE_SECONDS, keep_texts)
    classifier = LiveClassifier(pipe, store)
    watching = LiveMetrics(classifier, model, client)
    said = test_summary(read_test(model), pipe.model.config)
    batches, explaining = Batches(), asyncio.Lock()

    def score_some(posts: list[LivePost]) -> list[Result]:
        return classifier.score(posts, MAX_TOKENS)

    def forget_all(timeline_ids: list[str]) -> list[Forgotten]:
        return [classifier.forget(timeline_id) for timeline_id in timeline_ids]

    def explain_one(given: WholeTimeline) -> list[dict[str, Any]]:
        people = {"speakers": given.speaker, "states": given.state}
        timeline = Timeline.read("given", given.text, given.timestamp, shows_values=False, **people)
        columns, _ = timeline.tokenize(explainer.tokenizer, classifier.max_tokens)
        if (size := sum(map(len, columns["input_ids"]))) > MAX_EXPLAINED_TOKENS:
            raise ValueError(f"The timeline has {size} tokens, of which at most {MAX_EXPLAINED_TOKENS} are explained.")
        # Few posts at a time, because the stream of each is computed once without each of its posts.
        return explainer.explain(timeline, targets_per_row=8)

    @asynccontextmanager
    async def lifespan(app: FastAPI):
        if "OMP_NUM_THREADS" not in os.environ:
            logger.warning("OMP_NUM_THREADS is not set: threads that wait for each other may be ten times as slow.")
        kept = f"the texts of {keep_texts} posts of each timeline" if keep_texts else "no texts"
        logger.info("The model %s is known to Redis as %s; Redis keeps %s.", model, classifier.model_id, kept)
        app.state.serving = asyncio.create_task(batches.serve())
        yield
        app.state.serving.cancel()

    # FastAPI's documentation pages are off, because their scripts are on another server.
    app = FastAPI(title="Posts as they arrive", description=__doc__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=MAX_BODY)

    @app.exception_handler(RequestValidationError)
    async def refuse(request: Request, problem: RequestValidationError):
        # FastAPI's answer would repeat the text of the post.
        first = problem.errors()[0]
        return JSONResponse({"detail": f"{'.'.join(map(str, first['loc']))}: {first['msg']}"}, 422)

    @app.exception_handler(redis.RedisError)
    async def wait_for_redis(request: Request, problem: redis.RedisError):
        # The details are for the operator of the service.
        logger.error("Redis: %s", problem)
        return JSONResponse({"detail": "Redis cannot be reached, or refuses: send this again."}, 503, AGAIN)

    @app.post("/score")
    async def score(post: NewPost, request: Request) -> Answer:
        start = time.perf_counter()
        history = [(earlier.text, earlier.timestamp, earlier.speaker, earlier.state) for earlier in post.history]
        given = (post.timeline_id, post.post_id, post.text, post.timestamp, history, post.speaker)
        given += (post.state, post.previous_state)
        try:
            # In another thread, so that other requests are taken while a long history becomes tokens.
            read = await asyncio.to_thread(classifier.read, *given)
        except ValueError as problem:
            raise refused(422, str(problem)) from None
        if read.num_tokens > MAX_POST_TOKENS:
            raise refused(
                413,
                f"The post and its history have {read.num_tokens} tokens, and at most {MAX_POST_TOKENS} are read: "
                f"send fewer earlier posts. A stream holds the last {pipe.model.config.window - 1}.",
            )
        try:
            answer = await batches.answer(score_some, read, read.timeline_id, read.num_tokens, request)
        except RefusedPost as problem:
            raise refused(422, str(problem)) from None
        SECONDS.observe(time.perf_counter() - start)
        POSTS.labels("late" if answer is None else "scored").inc()
        if answer is None:
            raise HTTPException(409, "The post is older than the newest one of its timeline.")
        return answer

    @app.post("/explain")
    async def explain(timeline: WholeTimeline):
        if explaining.locked():
            raise HTTPException(503, "Another timeline is being explained: send this one again.", AGAIN)
        async with explaining:
            try:
                # It runs in its own thread, so that no post waits for it.
                return await asyncio.to_thread(explain_one, timeline)
            except ValueError as problem:
                raise HTTPException(422, str(problem)) from None

    @app.post("/forget")
    async def forget(person: Person) -> Deleted:
        try:
            check_id("timeline_id", person.timeline_id)
        except ValueError as problem:
            raise HTTPException(422, str(problem)) from None
        # In one spelling, so that it keeps its place among the posts of the timeline.
        timeline_id = read_name(person.timeline_id)
        models, texts = await batches.answer(forget_all, timeline_id, timeline_id)
        return Deleted(forgotten=bool(models or texts), models=models, texts=texts)

    @app.get("/alarms")
    def alarms() -> list[DueAlarm]:
        due = classifier.raise_due()
        watching.count_due(len(due))
        return due

    @app.get("/health")
    def health():
        try:
            store.check()
        except (redis.ConnectionError, redis.TimeoutError):
            raise HTTPException(503, "Redis cannot be reached.") from None
        except redis.RedisError as problem:
            raise HTTPException(503, f"Redis does not write: {problem}") from None
        if app.state.serving.done():
            raise HTTPException(503, "No posts are read any more.")
        return {"status": "ok", "model": classifier.model_id, "test": said}

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    def root():
        return PAGE.format(said=escape(" ".join(said)), paths=escape(__doc__.split("\n\n")[2]))

    @app.get("/docs", include_in_schema=False)
    def docs():
        raise HTTPException(
            404, "This page would load scripts from another server: see / or, in programs, /openapi.json."
        )

    @app.get("/metrics")
    def metrics():
        WAITING.set(len(batches.waiting))
        text = generate_latest(METRICS) + generate_latest(watching.registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder or Hub id")
    parser.add_argument("--redis", default="redis://127.0.0.1:6379/0")
    parser.add_argument(
        "--keep_texts",
        type=int,
        default=0,
        metavar="N",
        help="keep the texts of the last N posts of each timeline in Redis, for a new model to read (default: none)",
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    app = create_app(arguments.model, arguments.redis, arguments.keep_texts)
    logs = deepcopy(uvicorn.config.LOGGING_CONFIG)
    for lines in logs["formatters"].values():
        lines["fmt"] = f"%(asctime)s {lines['fmt']}"
    uvicorn.run(app, host=arguments.host, port=arguments.port, log_config=logs)

"""
A service that classifies posts as they arrive: read it, copy it, change it.

    pip install -c constraints.txt ".[live]"
    redis-server --appendonly yes
    python examples/server.py --model outputs/my_model

POST /score     {"timeline_id": "ann", "post_id": "17", "text": "...", "timestamp": "2024-05-01T09:00:00Z"}
POST /explain   {"text": ["...", "..."], "timestamp": ["...", "..."]}: what the pipeline's `explain` returns
POST /forget    {"timeline_id": "ann"}
GET  /health    200 while posts can be scored
GET  /metrics   for Prometheus

Send a post again, with the same `post_id`, until there is an answer: it is read once. Start several on ports of their
own behind a proxy, which also has to know who may ask: this page asks nobody for a password.
"""

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Annotated, Any

import redis
import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from pydantic import BaseModel, ConfigDict, Field
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from transformers import AutoTokenizer

from modeling_tempoformer import StreamClassificationPipeline, TempoFormerForStreamClassification
from modeling_tempoformer.live.classifier import LiveClassifier, LivePost
from modeling_tempoformer.live.redis_store import RedisStore


MAX_BATCH = 32  # posts of a step
MAX_WAITING = 256  # posts; more are refused, so that nobody waits long for an answer
MAX_POSTS = 100  # of a history, and of a timeline to explain
MAX_CHARACTERS = 10_000  # of a text
MAX_BODY = 1_000_000  # bytes
MAX_IDLE_SECONDS = 90 * 86400  # then a timeline is forgotten
AGAIN = {"Retry-After": "1"}  # seconds

METRICS = CollectorRegistry()
ProcessCollector(registry=METRICS)
POSTS = Counter("posts", "Posts by what became of them", ["outcome"], registry=METRICS)
SECONDS = Histogram("score_seconds", "From a post's arrival to its answer", registry=METRICS)
BATCH = Histogram("batch_posts", "Posts of a step", buckets=[2**n for n in range(8)], registry=METRICS)
WAITING = Gauge("waiting_posts", "Posts that wait for a step", registry=METRICS)

Id = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]
Time = float | str | None


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class EarlierPost(Body):
    text: Text
    timestamp: Time = None


class NewPost(EarlierPost):
    timeline_id: Id
    post_id: Id
    history: list[EarlierPost] = Field([], max_length=MAX_POSTS)


class Timeline(Body):
    text: list[Text] = Field(max_length=MAX_POSTS)
    timestamp: list[Time] | None = None


class Person(Body):
    timeline_id: Id


class Batches:
    """The posts that arrive while a batch is computed are the next batch. There is one at a time, in one thread."""

    def __init__(self, score: Callable[[Sequence[LivePost]], list]):
        self.score = score
        self.waiting: asyncio.Queue[tuple[LivePost, asyncio.Future]] = asyncio.Queue(MAX_WAITING)
        self.thread = ThreadPoolExecutor(1)

    async def answer(self, post: LivePost) -> dict[str, Any] | None:
        answer = asyncio.get_running_loop().create_future()
        try:
            self.waiting.put_nowait((post, answer))
        except asyncio.QueueFull:
            POSTS.labels("busy").inc()
            raise HTTPException(503, "Too many posts are waiting: send this one again.", AGAIN) from None
        return await answer

    async def run(self, function: Callable, *arguments):
        return await asyncio.get_running_loop().run_in_executor(self.thread, function, *arguments)

    async def serve(self):
        while True:
            batch = [await self.waiting.get()]
            while len(batch) < MAX_BATCH and not self.waiting.empty():
                batch.append(self.waiting.get_nowait())
            BATCH.observe(len(batch))
            try:
                found = await self.run(self.score, [post for post, _ in batch])
            except Exception as problem:
                POSTS.labels("failed").inc(len(batch))
                found = [problem] * len(batch)
            for (_, answer), result in zip(batch, found, strict=True):
                if answer.done():  # its client has gone
                    continue
                if isinstance(result, Exception):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)


def create_app(model: str, redis_url: str) -> FastAPI:
    pipe = StreamClassificationPipeline(
        model=TempoFormerForStreamClassification.from_pretrained(model),
        tokenizer=AutoTokenizer.from_pretrained(model),
    )
    # A tokenizer is for one thread at a time, and `explain` runs in another one than the reading of posts.
    explainer = StreamClassificationPipeline(model=pipe.model, tokenizer=AutoTokenizer.from_pretrained(model))
    client = redis.Redis.from_url(redis_url, socket_timeout=5, socket_connect_timeout=5)
    classifier = LiveClassifier(pipe, RedisStore(client, MAX_IDLE_SECONDS))
    batches, explaining = Batches(classifier.score), asyncio.Lock()

    @asynccontextmanager
    async def lifespan(app: FastAPI):
        app.state.serving = asyncio.create_task(batches.serve())
        yield
        app.state.serving.cancel()

    # Without the pages of documentation, whose scripts are on another server.
    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=MAX_BODY)

    @app.exception_handler(RequestValidationError)
    async def refuse(request: Request, problem: RequestValidationError):
        # Without the text of the post, which FastAPI's own answer repeats.
        first = problem.errors()[0]
        return JSONResponse({"detail": f"{'.'.join(map(str, first['loc']))}: {first['msg']}"}, 422)

    @app.exception_handler(redis.RedisError)
    async def wait_for_redis(request: Request, problem: redis.RedisError):
        return JSONResponse({"detail": f"Redis: {problem}"}, 503, AGAIN)

    @app.post("/score")
    async def score(post: NewPost):
        start = time.perf_counter()
        history = [(earlier.text, earlier.timestamp) for earlier in post.history]
        try:
            read = classifier.read(post.timeline_id, post.post_id, post.text, post.timestamp, history)
        except ValueError as problem:
            POSTS.labels("refused").inc()
            raise HTTPException(422, str(problem)) from None
        answer = await batches.answer(read)
        SECONDS.observe(time.perf_counter() - start)
        POSTS.labels("late" if answer is None else "scored").inc()
        if answer is None:
            raise HTTPException(409, "The post is older than the newest one of its timeline.")
        return answer

    @app.post("/explain")
    async def explain(timeline: Timeline):
        if explaining.locked():
            raise HTTPException(503, "Another timeline is being explained: send this one again.", AGAIN)
        async with explaining:
            try:
                return await batches.run(explainer.explain, timeline.model_dump(exclude_none=True))
            except ValueError as problem:
                raise HTTPException(422, str(problem)) from None

    @app.post("/forget")
    def forget(person: Person):
        return {"forgotten": classifier.forget(person.timeline_id)}

    @app.get("/health")
    def health():
        client.ping()
        if app.state.serving.done():
            raise HTTPException(503, "No posts are read any more.")
        return {"status": "ok"}

    @app.get("/metrics")
    def metrics():
        WAITING.set(batches.waiting.qsize())
        return Response(generate_latest(METRICS), media_type=CONTENT_TYPE_LATEST)

    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder or Hub id")
    parser.add_argument("--redis", default="redis://127.0.0.1:6379/0")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    uvicorn.run(create_app(arguments.model, arguments.redis), host=arguments.host, port=arguments.port)

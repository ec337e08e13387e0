"""The server that scores posts as they arrive, as an app of FastAPI."""

import asyncio
import logging
import os
import re
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from html import escape
from operator import itemgetter
from typing import Any

import redis
import torch
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exception_handlers import http_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, Counter, generate_latest
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from transformers import AutoTokenizer

from modeling_tempoformer import (
    BadValue,
    StreamClassificationPipeline,
    Timeline,
    describe_test,
    load_pipeline,
    read_answers,
    read_id,
    read_name,
)

from .batches import AGAIN, MAX_TOKENS, Batches
from .bodies import (
    ONE,
    SEVERAL,
    Answer,
    Answers,
    Deleted,
    DueAlarm,
    EarlierPost,
    NewPost,
    Person,
    PlacedPost,
    ScoreBody,
    WholeTimeline,
)
from .live_classifier import LiveClassifier, LivePost, RefusedPost, Result, check_id
from .metrics import LiveMetrics, ServerMetrics
from .policy import follow_policy, read_alarm
from .redis_store import Forgotten, RedisStore
from .request_logs import HEADER, REQUEST_ID, RequestLogs
from .settings import ServerSettings


logger = logging.getLogger(__name__)

JSON_TYPE = re.compile(r"application/([\w.+-]+\+)?json\s*(;|$)", re.IGNORECASE)
GZIP = b"\x1f\x8b"  # the beginning of what it has compressed
MAX_POST_TOKENS = 16_384  # tokens of a post and its history, read in several batches
MAX_EXPLAINED_TOKENS = 4096  # tokens of a timeline to explain

PATHS = """\
POST /score     {"timeline_id": "ann", "post_id": "17", "text": "...", "timestamp": "2024-05-01T09:00:00Z"}, or of
                whole timelines {"posts": [...]}, a list of such posts: nothing is remembered
POST /explain   {"text": ["...", "..."], "timestamp": ["...", "..."]}: the result of the pipeline's `explain`
POST /forget    {"timeline_id": "ann"}
GET  /alarms    alarms that are due while no post has come
GET  /live      200 while the process answers
GET  /ready     200 while the model is loaded, posts can be scored, and the server is not stopping
GET  /health    200 while posts can be scored, with the results of the model's test
GET  /          a description for people; /openapi.json is for programs
GET  /metrics   for Prometheus"""
ABOUT = f"""{PATHS}

A model that reads who speaks also needs the `speaker` of each post, null where that is not known. One that reads known
states takes the `state` of each post, for later ones, and the `previous_state`, where it has become known since.

Send a post again, with the same `post_id`, until you get an answer: it is read once. The server does not authenticate
clients."""
PAGE = """<!DOCTYPE html>
<html lang="en">
<title>Posts as they arrive</title>
<meta name="viewport" content="width=device-width">
<h1>Posts as they arrive</h1>
<p>This server gives each post of a timeline a label, from the post and those before it.</p>
<p><strong>How good the model is:</strong> {summary}</p>
<pre>{paths}</pre>
<p>For programs: <a href="openapi.json">openapi.json</a>. Predictions about people are sensitive: a person must check
each.</p>
</html>
"""


class LoadedModel:
    """A model that was loaded, what classifies by it, and what is said and counted of it."""

    def __init__(self, name: str, store: RedisStore):
        # In the precision in which it was saved
        self.pipe = load_pipeline(name, dtype="auto")
        # Its own tokenizer, because whole timelines are read in another thread than posts that arrive.
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        self.whole_pipe = StreamClassificationPipeline(model=self.pipe.model, tokenizer=tokenizer)
        self.alarm = read_alarm(name, self.pipe.model.config)
        self.classifier = LiveClassifier(self.pipe, store, self.alarm)
        self.watching = LiveMetrics(self.classifier, name)
        self.summary = describe_test(name, self.pipe.model.config)
        logger.info("The model %s is known to Redis as %s.", name, self.classifier.model_id)

    def score_some(self, posts: list[LivePost]) -> list[Result]:
        return self.classifier.score(posts, MAX_TOKENS)

    def forget_all(self, timeline_ids: list[str]) -> list[Forgotten]:
        return [self.classifier.forget(timeline_id) for timeline_id in timeline_ids]

    def explain(self, given: WholeTimeline) -> list[dict[str, Any]]:
        people = {"speakers": given.speaker, "states": given.state}
        timeline = Timeline.read("given", given.text, given.timestamp, shows_values=False, **people)
        columns, _ = timeline.tokenize(self.whole_pipe.tokenizer, self.classifier.max_tokens)
        if (size := sum(map(len, columns["input_ids"]))) > MAX_EXPLAINED_TOKENS:
            raise ValueError(f"The timeline has {size} tokens: at most {MAX_EXPLAINED_TOKENS} can be explained.")
        # Few posts at a time, because the stream of each is computed once without each of its posts.
        try:
            explained = self.whole_pipe.explain(timeline, targets_per_row=8)
        except BadValue as bad:
            # Without the value, which may be private
            raise ValueError(f"{bad.field}: {bad.problem}.") from None
        return follow_policy(explained, self.find_events(timeline, explained))

    def find_events(self, timeline: Timeline, answers: Sequence[dict[str, Any]]) -> list[int] | None:
        """Returns the events of the answers about a timeline by the policy of alarms, in their order; None without."""
        if self.alarm is None:
            return None
        ordered = [list(answers[row]["probabilities"].values()) for row in timeline.input_rows]
        events = self.alarm.find_events(torch.tensor(ordered), timeline.timestamps)
        return [event for _, event in sorted(zip(timeline.input_rows, events, strict=True))]

    def read_several(self, posts: Sequence[PlacedPost]) -> list[tuple[list[int], Timeline]]:
        """
        Returns the timelines of posts, each with the places of its posts in the list. Raises a `ValueError`, which
        repeats no value, for what cannot be read.
        """
        places: dict[str, list[int]] = {}
        for place, post in enumerate(posts):
            for name in ("timeline_id", "post_id"):
                check_id(f"post {place} of `posts`: {name}", getattr(post, name))
            if not (timeline_id := read_id(post.timeline_id)):
                raise ValueError(
                    f"post {place} of `posts`: the id of the timeline must not be empty, nor a word for nothing (nan)."
                )
            places.setdefault(timeline_id, []).append(place)
        # Numbers stand for ids, so that no log line has one.
        return [
            (
                of_timeline,
                self.classifier.read_timeline(
                    number,
                    [given_values(posts[place]) for place in of_timeline],
                    [f"post {place} of `posts`" for place in of_timeline],
                ),
            )
            for number, of_timeline in enumerate(places.values())
        ]

    def score_several(
        self, posts: Sequence[PlacedPost], timelines: list[tuple[list[int], Timeline]]
    ) -> list[dict[str, Any]]:
        """Returns the pipeline's answers about posts, in their order, with their ids."""
        self.whole_pipe([timeline for _, timeline in timelines])
        config = self.pipe.model.config
        answers: dict[int, dict[str, Any]] = {}
        for places, timeline in timelines:
            read = read_answers(timeline.logits, config, config.calibration, timeline.state_logits)
            read = [answer for _, answer in sorted(zip(timeline.input_rows, read, strict=True), key=itemgetter(0))]
            read = follow_policy(read, self.find_events(timeline, read))
            answers |= dict(zip(places, read, strict=True))
        return [
            {"timeline_id": post.timeline_id, "post_id": post.post_id, **answers[place]}
            for place, post in enumerate(posts)
        ]


def given_values(post: EarlierPost) -> tuple:
    """Returns the values of a post as [`LiveClassifier.read_timeline`] takes them."""
    return post.text, post.timestamp, post.speaker, post.state


def refused(counter: Counter, status: int, sentence: str, count: int = 1) -> HTTPException:
    """Counts posts that are refused. Returns the answer."""
    counter.labels("refused").inc(count)
    return HTTPException(status, sentence)


def create_app(settings: ServerSettings, store: RedisStore | None = None) -> FastAPI:
    """
    Returns the app, and begins to load its model in another thread; until that is done, requests for it get 503.

    Args:
        settings ([`~tempoformer_live.settings.ServerSettings`]): The settings. The app does not read
            the address to listen on, nor what is set for logs and draining.
        store ([`~tempoformer_live.redis_store.RedisStore`], *optional*): The memory of timelines, by
            default one of the settings' Redis server.

    Returns:
        `FastAPI`. In its `state`, `loading` is a `concurrent.futures.Future` of the loaded model, which raises what
        the loading has raised, and `draining` (`bool`, False at first) says whether `/ready` answers 503 because the
        server is stopping.
    """
    if store is None:
        client = redis.Redis.from_url(settings.redis, socket_timeout=5, socket_connect_timeout=5)
        store = RedisStore(client, 86400 * settings.max_idle_days, settings.keep_texts)
    metrics = ServerMetrics()
    batches, computing_whole = Batches(metrics), asyncio.Lock()
    loader = ThreadPoolExecutor(1)
    loading: Future[LoadedModel] = loader.submit(LoadedModel, settings.model, store)
    loader.shutdown(wait=False)

    @asynccontextmanager
    async def lifespan(app: FastAPI):
        if "OMP_NUM_THREADS" not in os.environ:
            logger.warning("OMP_NUM_THREADS is not set: threads that wait for each other may be ten times as slow.")
        kept = f"the texts of {settings.keep_texts} posts of each timeline" if settings.keep_texts else "no texts"
        logger.info("Redis keeps %s.", kept)
        app.state.serving = asyncio.create_task(batches.serve())
        yield
        app.state.serving.cancel()

    # FastAPI's documentation pages are off, because their scripts are on another server.
    app = FastAPI(title="Posts as they arrive", description=ABOUT, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=settings.max_bytes)
    # Added last, so that it is around the others.
    app.add_middleware(RequestLogs)
    app.state.loading, app.state.draining = loading, False

    def loaded() -> LoadedModel:
        if not loading.done():
            raise HTTPException(503, "The model is being loaded: send this again.", AGAIN)
        return loading.result()

    async def compute_whole(function, *arguments):
        """Computes whole timelines in a thread of their own, so that no post waits for them."""
        if computing_whole.locked():
            raise HTTPException(503, "Other whole timelines are being computed: send this again.", AGAIN)
        async with computing_whole:
            return await asyncio.to_thread(function, *arguments)

    @app.exception_handler(StarletteHTTPException)
    async def explain_body(request: Request, problem: StarletteHTTPException):
        # The body could not be decoded.
        if isinstance(cause := problem.__cause__, UnicodeDecodeError):
            is_packed = "content-encoding" in request.headers or cause.object.startswith(GZIP)
            kind = "compressed" if is_packed else "not in UTF-8"
            problem = HTTPException(problem.status_code, f"The body is {kind}: send JSON in UTF-8, as it is.")
        return await http_exception_handler(request, problem)

    @app.exception_handler(RequestValidationError)
    async def refuse(request: Request, problem: RequestValidationError):
        given = request.headers.get("content-type")
        # FastAPI reads such a body as a text.
        if not JSON_TYPE.match(given or ""):
            sentence = "The request needs the header Content-Type: application/json, and has "
            return JSONResponse({"detail": f"{sentence}{'none' if given is None else 'another'}."}, 415)
        # FastAPI's answer would repeat the text of the post.
        first = problem.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part not in (ONE, SEVERAL))
        return JSONResponse({"detail": f"{place}: {first['msg']}"}, 422)

    @app.exception_handler(redis.RedisError)
    async def wait_for_redis(request: Request, problem: redis.RedisError):
        # The details are for the operator of the service.
        logger.error("Redis: %s", problem)
        return JSONResponse({"detail": "Redis cannot be reached, or refuses: send this again."}, 503, AGAIN)

    @app.exception_handler(Exception)
    async def fail(request: Request, problem: Exception):
        # The handler of all errors is outside of the middleware that adds the id to other answers.
        headers = {HEADER: REQUEST_ID.get()}
        return JSONResponse({"detail": "The server has failed: its log says more, by the request's id."}, 500, headers)

    @app.post("/score")
    async def score(body: ScoreBody, request: Request) -> Answer | Answers:
        if isinstance(body, NewPost):
            return await score_one(loaded(), body, request)
        return {"answers": await score_several(loaded(), body.posts)}

    async def score_one(model: LoadedModel, post: NewPost, request: Request) -> dict[str, Any]:
        start = time.perf_counter()
        history = [given_values(earlier) for earlier in post.history]
        given = (post.timeline_id, post.post_id, post.text, post.timestamp, history, post.speaker)
        given += (post.state, post.previous_state)
        try:
            # In another thread, so that other requests are taken while a long history becomes tokens.
            read = await asyncio.to_thread(model.classifier.read, *given)
        except ValueError as problem:
            raise refused(metrics.posts, 422, str(problem)) from None
        if read.num_tokens > MAX_POST_TOKENS:
            raise refused(
                metrics.posts,
                413,
                f"The post and its history have {read.num_tokens} tokens, and at most {MAX_POST_TOKENS} are read: "
                f"send fewer earlier posts. A stream holds the last {model.pipe.model.config.window - 1}.",
            )
        try:
            answer = await batches.answer(model.score_some, read, read.timeline_id, read.num_tokens, request)
        except RefusedPost as problem:
            raise refused(metrics.posts, 422, str(problem)) from None
        metrics.seconds.observe(time.perf_counter() - start)
        metrics.posts.labels("late" if answer is None else "scored").inc()
        if answer is None:
            raise HTTPException(409, "The post is older than the newest one of its timeline.")
        return answer

    async def score_several(model: LoadedModel, posts: list[PlacedPost]) -> list[dict[str, Any]]:
        if len(posts) > settings.max_posts:
            raise refused(
                metrics.stateless,
                413,
                f"The request has {len(posts)} posts, and at most {settings.max_posts} are read: send the timelines "
                "in several requests.",
                len(posts),
            )
        try:
            timelines = await asyncio.to_thread(model.read_several, posts)
        except ValueError as problem:
            raise refused(metrics.stateless, 422, str(problem), len(posts)) from None
        outcome = "failed"
        try:
            answers = await compute_whole(model.score_several, posts, timelines)
            outcome = "scored"
        except HTTPException:
            outcome = "busy"
            raise
        finally:
            metrics.stateless.labels(outcome).inc(len(posts))
        return answers

    @app.post("/explain")
    async def explain(timeline: WholeTimeline):
        try:
            return await compute_whole(loaded().explain, timeline)
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
        models, texts = await batches.answer(loaded().forget_all, timeline_id, timeline_id)
        return Deleted(forgotten=bool(models or texts), models=models, texts=texts)

    @app.get("/alarms")
    def alarms() -> list[DueAlarm]:
        model = loaded()
        due = model.classifier.raise_due()
        model.watching.count_due(len(due))
        return due

    @app.head("/live", include_in_schema=False)
    @app.get("/live")
    async def live():
        return {"status": "live"}

    @app.head("/ready", include_in_schema=False)
    @app.get("/ready")
    def ready():
        if app.state.draining:
            raise HTTPException(503, "The server is stopping.")
        health()
        return {"status": "ready"}

    @app.head("/health", include_in_schema=False)
    @app.get("/health")
    def health():
        model = loaded()
        try:
            store.check()
        except (redis.ConnectionError, redis.TimeoutError):
            raise HTTPException(503, "Redis cannot be reached.") from None
        except redis.RedisError as problem:
            raise HTTPException(503, f"Redis does not write: {problem}") from None
        if app.state.serving.done():
            raise HTTPException(503, "No posts are read any more.")
        return {"status": "ok", "model": model.classifier.model_id, "test": model.summary}

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    def root():
        return PAGE.format(summary=escape(" ".join(loaded().summary)), paths=escape(PATHS))

    @app.get("/docs", include_in_schema=False)
    def docs():
        raise HTTPException(
            404, "This page would load scripts from another server: see / or, in programs, /openapi.json."
        )

    @app.get("/metrics")
    def show_metrics():
        metrics.waiting.set(len(batches.waiting))
        of_model = generate_latest(loading.result().watching.registry) if loading.done() else b""
        return Response(generate_latest(metrics.registry) + of_model, media_type=CONTENT_TYPE_LATEST)

    return app

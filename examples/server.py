"""
The server of `tempoformer serve` with settings and a store of your own. Read it, copy it, change it.

It is a script of its own, which needs the extra `live`; set OMP_NUM_THREADS=1, so that each worker takes one core.
Redis Sentinel says here which Redis server is the main one, so that another one can take its place. A path is added to
the paths of `tempoformer serve`.
"""

from redis.sentinel import Sentinel

from tempoformer_live.draining import serve
from tempoformer_live.redis_store import RedisStore
from tempoformer_live.server import create_app
from tempoformer_live.settings import ServerSettings


settings = ServerSettings(model="outputs/mine", max_posts=2000, max_bytes=1_000_000, log_format="json")
sentinel = Sentinel([("127.0.0.1", 26379)], socket_timeout=5)
store = RedisStore(sentinel.master_for("mymaster"), max_idle_seconds=30 * 86400, keep_texts=20)
app = create_app(settings, store)


@app.get("/contact")
def contact() -> dict[str, str]:
    return {"mail": "you@example.org"}


if __name__ == "__main__":
    serve(app, settings)

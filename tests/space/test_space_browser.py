"""Checks the app in a browser, on this machine and as the files of a Space: it stores nothing and contacts nobody."""

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
from helpers import ROOT
from hub_server import HubServer
from saved import push_folder, save_model
from space_pushing import push_space


pytestmark = pytest.mark.slow

ATTACK = "</script><script>document.title='x'</script><img src=x onerror=\"document.title='y'\">${alert(1)}"
# No model, log or page has this word by itself.
WORD = "quokka"
TABLE = f"""timeline_id,timestamp,text,label
ann,2024-05-01T09:00:00Z,so glad of the {WORD},O
bob,2024-05-01T10:00:00Z,"a {WORD}, says bob",
ann,2024-05-02T22:10:00Z,"tired {WORD} {ATTACK.replace('"', '""')}",IS
ann,2024-05-02T22:20:00Z,sad {WORD},
"""
LINES = f"2024-05-01 09:00 the {WORD} was glad\n2024-05-01 09:10 the {WORD} was sad\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model") / "mine")


@contextmanager
def served(folder: Path, environment: dict[str, str], *command: str):
    """Yields the address, the process and the log of an app. Its temporary files are in its folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "tmp").mkdir(parents=True)
    settings = {"TMPDIR": str(folder / "tmp"), "HF_HOME": str(folder / "home"), "GRADIO_SERVER_PORT": str(port)}
    url, log = f"http://127.0.0.1:{port}/", folder / "log.txt"
    with log.open("w") as file:
        both, environment = {"stdout": file, "stderr": subprocess.STDOUT}, {**environment, **settings}
        process = subprocess.Popen([sys.executable, *command], cwd=folder, env=environment, **both)
    try:
        for _ in range(240):
            assert process.poll() is None, log.read_text()
            try:
                httpx.get(url, timeout=5).raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(0.5)
        else:
            pytest.fail(log.read_text())
        yield url, process, log
    finally:
        process.terminate()
        process.wait(60)


def show(browser, posts: str | None, answer: str):
    """Gives posts, clicks, and waits for the answer or the problem."""
    if posts is not None:
        browser.set_value("#posts textarea", posts)
    browser.find("#show").click()
    browser.wait_for(lambda: any(answer in text for text in browser.texts("#result .done, #result .problem")))


def wait_for_page(browser, text: str):
    """Waits until the page of timelines shows a text."""
    browser.driver.switch_to.frame(browser.find("#result iframe"))
    browser.wait_for(lambda: any(text in shown for shown in browser.texts("main")))
    browser.driver.switch_to.default_content()


def others(browser, url: str) -> list[str]:
    """Returns the browser's problems, and requests to other addresses."""
    return [problem for problem in browser.problems() if not problem.startswith((url, f"blob:{url}"))]


def holding(folder: Path, word: str) -> list[Path]:
    """Returns the files below a folder with a word in their content or name."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if word.encode() in path.read_bytes() or word in path.name]


def test_on_this_machine(browser, model, tmp_path):
    command = (str(ROOT / "examples" / "space" / "run.py"), "--model_name_or_path", model)
    open_to_all = {**os.environ, "GRADIO_SERVER_NAME": "0.0.0.0", "GRADIO_SHARE": "True"}
    with served(tmp_path / "run", open_to_all, *command) as (url, process, log):
        heard = [each.laddr.ip for each in psutil.Process(process.pid).net_connections() if each.status == "LISTEN"]
        assert set(heard) == {"127.0.0.1"}
        browser.open(url, "#show")

        # A table
        show(browser, TABLE, "Posts: 4. Timelines: 2.")
        wait_for_page(browser, f"sad {WORD}")
        assert browser.driver.title == "Timelines of posts"

        # A mistake
        show(browser, f"the {WORD} was glad", "Line 1")

        # The server does not take requests that no page sends: long ones, and files.
        assert httpx.post(f"{url}gradio_api/queue/join", content=b" " * 20_000_000, timeout=60).status_code == 413
        for path in ("upload", "component_server", "process_recording"):
            files = {"files": ("posts.csv", f"a {WORD}".encode()), "video": ("posts.mp4", f"a {WORD}".encode())}
            assert httpx.post(f"{url}gradio_api/{path}", files=files, timeout=60).is_error

        # The made-up posts
        browser.find("#example").click()
        browser.wait_for(lambda: "Sam" in browser.find("#posts textarea").get_property("value"))
        show(browser, None, "Posts: 6. Timelines: 1.")
        assert others(browser, url) == []
    # Gradio writes nothing either.
    assert holding(tmp_path / "run", WORD) == holding(tmp_path / "run" / "tmp", "") == []
    assert url.rstrip("/") in log.read_text()


def test_the_files_of_a_space_alone(browser, model, tmp_path, monkeypatch):
    """They run in their own folder, in a Python without this checkout and its tests on its path."""
    with HubServer() as hub:
        with monkeypatch.context() as patch:
            hub.connect(patch, tmp_path / "home")
            push_folder(model, "me/mine")
            push_space("me/mine", "me/look")
        space = tmp_path / "space"
        for name, content in hub.files("spaces/me/look").items():
            (space / name).parent.mkdir(parents=True, exist_ok=True)
            (space / name).write_bytes(content)
        start = "import modeling_tempoformer as package; print(package.__file__, flush=True); import app"
        settings = hub.environment(
            space / "home", PYTHONPATH=str(ROOT / "tests" / "no_network"), GRADIO_SERVER_NAME="127.0.0.1"
        )
        with served(space, settings, "-c", start) as (url, _, log):
            assert str(space / "modeling_tempoformer" / "__init__.py") in log.read_text().splitlines()
            browser.open(url, "#show")
            show(browser, LINES, "Posts: 2. Timelines: 1.")
            wait_for_page(browser, f"the {WORD} was sad")
            assert others(browser, url) == []
        assert holding(space, WORD) == []

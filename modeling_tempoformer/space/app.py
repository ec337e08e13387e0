"""The app: posts and a model in, a page of timelines and a table of predictions out. Needs the extra `space`."""

import logging
import traceback
from base64 import b64encode
from functools import partial
from pathlib import Path

import gradio as gr
from markupsafe import Markup
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ..evaluation.predictions import PREDICTIONS, to_csv
from .posts import MOST_BYTES, MOST_CHARACTERS, MOST_POSTS
from .timelines import Models, load_pipeline, predict_posts


STYLE = Path(__file__).with_name("app.css")
INTRO = """
# Timelines of posts

A model reads the posts of each person or conversation in the order of their times, and gives each post a label: does
something change here? You see the labels on a time axis, and which earlier posts moved them.
"""
EXAMPLE = """2024-05-01 09:10  slept well and walked to work in the sun
2024-05-01 20:45  dinner with Sam, we laughed a lot
2024-05-03 08:30  a quiet day, read half of my book
2024-05-06 23:50  they called about the job, it is gone
2024-05-07 03:20  can't sleep, what am I going to tell them at home
2024-05-07 13:05  I don't want to talk to anyone
2024-05-09 22:15  everything feels heavy today
2024-05-15 18:40  Sam came by and we cooked something
2024-05-16 09:00  up early, wrote two applications
2024-05-20 19:30  first interview next week, I feel hopeful
"""
FORMS = (
    "One post on each line after its time, or a table copied from a spreadsheet: its first line names the columns "
    f"text, timestamp, timeline_id (whose post) and label, of which only text must be there. At most {MOST_POSTS:,} "
    f"posts and {MOST_CHARACTERS:,} characters."
)
MODEL = {
    True: "Id of a TempoFormer on the Hub. Only public models can be named, and no code of theirs is run.",
    False: "Folder of a TempoFormer on this machine, or its id on the Hub, which is then asked for it.",
}
CARE = {
    True: "**Your posts** are sent to this Space to be read, and only for that: they are kept in your browser, and "
    "neither stored nor logged here. For private posts run the app on your own machine.",
    False: "**Your posts** stay on this machine. They are neither stored nor logged.",
}
LIMITS = (
    "**Predictions about people are sensitive.** A prediction is a hint for a person to check. It is never a "
    "diagnosis, and nobody should decide anything about a person because of it."
)
# The browser reads the file: it is never uploaded as one, so that there is nothing to delete.
FILE = '<label>Open a CSV file <input type="file" accept=".csv,.tsv,.txt"></label>'
READ_FILE = f"""
element.querySelector("input").addEventListener("change", async ({{target}}) => {{
  if (!target.files.length) return;
  props.value = await target.files[0].slice(0, {MOST_BYTES}).text();
  trigger("input");
}});
"""
# A character has at most two of the units that a browser counts.
CUT = f"(text, name) => [text.slice(0, {2 * MOST_CHARACTERS + 1}), name]"
RESULT = Markup(
    """<p class="done"><span>Posts: {posts:,}. Timelines: {timelines:,}.</span>
<a download="{name}" href="data:text/csv;charset=utf-8;base64,{table}">Download the predictions (CSV)</a></p>
<iframe title="Timelines" sandbox="allow-scripts allow-modals" srcdoc="{page}"></iframe>"""
)
PROBLEM = Markup('<p class="problem" role="alert">{problem}</p>')

logger = logging.getLogger(__name__)


def show_posts(text: str, name: str, models: Models) -> str:
    """
    HTML with the timelines of the posts in a text and their predictions, or with one sentence that says what to
    change. The browser gets all of it and no file is written here.
    """
    try:
        page, table = predict_posts(text, name.strip(), models)
    except (ValueError, OSError) as problem:
        return PROBLEM.format(problem=" ".join(str(problem).split()))
    except Exception as problem:
        # The message of a bug may hold posts: only its place is logged.
        place = traceback.extract_tb(problem.__traceback__)[-1]
        logger.error("%s in %s, line %d.", type(problem).__name__, place.filename, place.lineno)
        return PROBLEM.format(problem="This is an error of the app and not of your posts; its log says where.")
    return RESULT.format(
        posts=len(table),
        timelines=table["timeline_id"].nunique(),
        name=PREDICTIONS,
        table=b64encode(to_csv(table).encode()).decode(),
        page=page,
    )


class RefuseFiles:
    """Refuses requests that carry files. The app needs none, and Gradio would store them on its disk."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send):
        is_form = scope["type"] == "http" and Headers(scope=scope).get("content-type", "").lower().startswith(
            "multipart/"
        )
        refused = PlainTextResponse("No files are taken.", status_code=415)
        await (refused if is_form else self.app)(scope, receive, send)


def make_app(models: Models) -> gr.Blocks:
    """The app, not yet served."""
    with gr.Blocks(title="Timelines of posts", analytics_enabled=False) as app:
        gr.Markdown(f"{INTRO}\n{CARE[models.public]}")
        posts = gr.Textbox(
            label="1. Posts",
            info=FORMS,
            placeholder=EXAMPLE,
            lines=8,
            max_lines=16,
            elem_id="posts",
            # Some browsers send what they check to a server.
            html_attributes=gr.InputHTMLAttributes(spellcheck=False, autocomplete="off", autocorrect="off"),
        )
        with gr.Row(elem_id="sources"):
            file = gr.HTML(html_template=FILE, js_on_load=READ_FILE, elem_id="file")
            example = gr.Button("Try made-up posts", size="md", elem_id="example")
        name = gr.Textbox(label="2. Model", info=MODEL[models.public], value=models.default, elem_id="model")
        show = gr.Button("3. Show the timelines", variant="primary", elem_id="show")
        result = gr.HTML(elem_id="result")
        gr.Markdown(LIMITS)
        # In the browser.
        file.input(None, file, posts, js="text => text")
        example.click(None, None, posts, js=f"() => {EXAMPLE!r}")
        show.click(
            partial(show_posts, models=models),
            [posts, name],
            result,
            js=CUT,
            scroll_to_output=True,
            api_visibility="private",
        )
    return app


def run_app(default: str, public: bool = False):
    """
    Serves the app until it is stopped.

    Args:
        default (`str`): Folder or Hub id of the model that is offered first.
        public (`bool`, *optional*, defaults to `False`): Whether strangers use it, as in a Space: then it listens
            where the environment says (`GRADIO_SERVER_NAME`), and only public models of the Hub can be named beside
            the first. Otherwise it listens on loopback only.

    Raises the errors of [`load_pipeline`] for the default model.
    """
    load_pipeline(default)
    make_app(Models(default, public)).launch(
        server_name=None if public else "127.0.0.1",
        share=False,
        # Gradio would keep what was given and shown in the browser.
        run_history=False,
        enable_monitoring=False,
        app_kwargs={
            "middleware": [Middleware(RequestBodyLimitMiddleware, max_body_size=MOST_BYTES), Middleware(RefuseFiles)]
        },
        ssr_mode=False,
        mcp_server=False,
        footer_links=[],
        css_paths=STYLE,
        theme=gr.themes.Default(primary_hue="blue").set(block_info_text_color="*neutral_600"),
    )

"""The app, which turns posts into a page of timelines and a table of predictions. Needs the extra `space`."""

import logging
import traceback
from base64 import b64encode
from functools import partial
from pathlib import Path

import gradio as gr
from markupsafe import Markup
from space_posts import MOST_POSTS, parse_posts
from starlette.middleware import Middleware
from starlette.middleware.body_limit import RequestBodyLimitMiddleware

from modeling_tempoformer.common.table_arguments import PostArguments, columns_of
from modeling_tempoformer.decisions_tempoformer import class_names
from modeling_tempoformer.evaluation.prediction_table import PREDICTIONS, prediction_rows, to_csv
from modeling_tempoformer.evaluation.predictions import decide_posts
from modeling_tempoformer.evaluation.report import describe_test
from modeling_tempoformer.pipeline_tempoformer import StreamClassificationPipeline
from modeling_tempoformer.posts.reading import read_timelines
from modeling_tempoformer.posts.splits import hold_back, read_split
from modeling_tempoformer.view.timeline_page import timeline_page
from modeling_tempoformer.view.timelines import explain_timelines, load_pipeline


INTRO = """
# Timelines of posts

A model reads the posts of each person or conversation in the order of their times, and gives each post a label: does
something change here? You see the labels on a time axis, and which earlier posts moved them.

**Your posts** are read by the machine that this app runs on, and neither stored nor logged there. For private posts
run the app on your own machine.

**Predictions about people are sensitive.** A prediction is a hint for a person to check. It is never a diagnosis, and
nobody should decide anything about a person because of it.
"""
EXAMPLE = """2024-05-01 20:45  dinner with Sam, we laughed a lot
2024-05-03 08:30  a quiet day, read half of my book
2024-05-06 23:50  they called about the job, it is gone
2024-05-07 03:20  can't sleep, what am I going to tell them at home
2024-05-09 22:15  everything feels heavy today
2024-05-15 18:40  Sam came by and we cooked something
"""
FORMS = (
    "One post on each line after its time, or a table copied from a spreadsheet: its first line names the columns "
    "text, timestamp, timeline_id (whose timeline), speaker (who wrote the post) and label; only text must be there, "
    f"and speaker for a model that reads who speaks. At most {MOST_POSTS:,} posts."
)
RESULT = Markup(
    """<p class="done"><span>Posts: {posts:,}. Timelines: {timelines:,}.</span>
<a download="{name}" href="data:text/csv;charset=utf-8;base64,{table}">Download the predictions (CSV)</a></p>
<iframe title="Timelines" sandbox="allow-scripts allow-modals" srcdoc="{page}"></iframe>"""
)
PROBLEM = Markup('<p class="problem" role="alert">{problem}</p>')

logger = logging.getLogger(__name__)


def show_posts(text: str, pipe: StreamClassificationPipeline, model: str) -> str:
    """Returns HTML: the timelines of the posts in a text with their predictions, or what to change in the text."""
    try:
        return predict_posts(text, pipe, model)
    except (ValueError, OSError) as problem:
        return PROBLEM.format(problem=" ".join(str(problem).split()))
    except Exception as problem:
        # The message of an unexpected error may hold posts, so only its line of code is logged.
        frame = traceback.extract_tb(problem.__traceback__)[-1]
        logger.error("%s in %s, line %d.", type(problem).__name__, frame.filename, frame.lineno)
        return PROBLEM.format(problem="This is an error of the app and not of your posts; its log says where.")


def predict_posts(text: str, pipe: StreamClassificationPipeline, model: str) -> str:
    config = pipe.model.config
    names = class_names(config)
    timelines = read_timelines(parse_posts(text), columns_of(PostArguments()), names, config.change_step)
    timelines = hold_back("test", timelines, read_split(model), model)
    explain_timelines(pipe, timelines)
    predictions, probabilities = decide_posts(timelines, config.calibration)
    table = to_csv(prediction_rows(timelines, predictions, probabilities, names, config=config))
    return RESULT.format(
        posts=len(predictions),
        timelines=len(timelines),
        name=PREDICTIONS,
        table=b64encode(table.encode()).decode(),
        page=timeline_page(
            timelines,
            names,
            config.calibration,
            verdict=describe_test(model, config),
            no_change=config.no_change,
            watched=config.watched,
        ),
    )


def run_app(model: str, public: bool = False):
    """
    Serves the app until it is stopped. Posts are neither stored nor logged.

    Args:
        model (`str`): Folder or Hub id of a TempoFormer. Code beside its weights is never run.
        public (`bool`, *optional*, defaults to `False`): If True, listens on `GRADIO_SERVER_NAME`, as in a Space,
            instead of on loopback only.

    Raises a `ValueError` for another kind of model, and an `OSError` for one that does not exist.
    """
    # Warnings about posts would write the names of people to the log.
    logging.getLogger("modeling_tempoformer.posts").setLevel(logging.ERROR)
    answer = partial(show_posts, pipe=load_pipeline(model), model=model)
    # Some browsers send the text to a server to check its spelling.
    unchecked = gr.InputHTMLAttributes(spellcheck=False, autocomplete="off", autocorrect="off")
    with gr.Blocks(title="Timelines of posts", analytics_enabled=False) as app:
        gr.Markdown(INTRO)
        posts = gr.Textbox(label="Posts", info=FORMS, lines=8, elem_id="posts", html_attributes=unchecked)
        # Runs in the browser.
        gr.Button("Try made-up posts", elem_id="example").click(None, None, posts, js=f"() => {EXAMPLE!r}")
        show = gr.Button("Show the timelines", variant="primary", elem_id="show")
        result = gr.HTML(elem_id="result")
        show.click(answer, posts, result, scroll_to_output=True, api_visibility="private")
    app.launch(
        server_name=None if public else "127.0.0.1",
        share=False,
        # Gradio would keep inputs and outputs in the browser, and files, which the app does not need, on disk.
        run_history=False,
        max_file_size=1,
        enable_monitoring=False,
        app_kwargs={"middleware": [Middleware(RequestBodyLimitMiddleware, max_body_size=8_000_000)]},
        ssr_mode=False,
        css_paths=Path(__file__).with_name("space_app.css"),
    )

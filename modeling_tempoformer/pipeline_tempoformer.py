"""The pipeline for whole timelines, and the explanations of its answers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForSequenceClassification, Pipeline, PreTrainedConfig
from transformers.pipelines import PIPELINE_REGISTRY
from transformers.utils import logging

from .data_collator_tempoformer import StreamCollator, posts_of
from .decisions_tempoformer import check_finite, class_names, decide, log_odds, read_answers
from .streams_tempoformer import INDICES, change_streams
from .timeline_tempoformer import Timeline, cut_rows, is_message, read_message


logger = logging.get_logger(__name__)

# Slots of streams that an explanation reads in a pass, and the tokens in them, padding included.
SLOTS_AT_ONCE, TOKENS_AT_ONCE = 4096, 2**17
# Batches whose posts are encoded together, so that posts of similar length share a pass, and posts that are padded to
# the longest of them.
BATCHES_AT_ONCE, POSTS_AT_ONCE = 16, 512


def explain_streams(
    model: torch.nn.Module,
    empty: dict[str, torch.Tensor],
    stream_index: torch.LongTensor,
    elapsed: torch.FloatTensor | None = None,
    timeline_position: torch.FloatTensor | None = None,
    speaker_posts: torch.LongTensor | None = None,
    earlier_states: torch.FloatTensor | None = None,
    **posts: torch.Tensor,
) -> dict[str, torch.Tensor]:
    """
    Computes the logits of streams, and of the same streams with one thing changed ([`change_streams`]), by `forward`
    on the same posts with more streams. `empty` are the tokens (1, tokens) of an empty text.

    Returns `logits` (batch_size, num_streams, window + 3, num_labels) of these streams. `attention` (batch_size,
    num_streams, num_stream_layers, window) is from the newest post, mean over heads; of no layer where the network has
    no weight among the experts. `state_logits` (batch_size,
    num_streams, num_states) is of the unchanged streams, if the model has learned states. `by_rule` (batch_size,
    num_streams, window + 3) is where a stream's class follows from the rule of first posts. Values at padding mean
    nothing.
    """
    shape, posts = stream_index.shape[:2], model.post_inputs(**posts)
    # The posts of all rows become one row, from which the streams are read. Its last post is empty.
    num_posts = posts["attention_mask"].shape[1]
    posts = {name: values.flatten(0, 1) for name, values in posts.items()}
    last = model.post_inputs(**{name: values.unsqueeze(0) for name, values in empty.items()})
    for name, values in posts.items():
        added = nn.functional.pad(last[name][0], (0, values.shape[-1] - last[name].shape[-1]))
        posts[name] = torch.cat((values, added.to(values)))
    offset = torch.arange(shape[0], device=stream_index.device)[:, None, None] * num_posts
    places = [
        None if index is None else torch.where(index < 0, -1, index + offset)
        for index in (stream_index, speaker_posts)
    ]
    inputs = change_streams(
        model.config.window, shape[0] * num_posts, places[0], elapsed, timeline_position, places[1]
    )
    if earlier_states is not None:
        # A person's known states stay, except where the post is said to begin the timeline.
        inputs["earlier_states"] = earlier_states.unsqueeze(2).repeat(1, 1, inputs["stream_index"].shape[2], 1, 1)
        inputs["earlier_states"][:, :, -1] = 0.0
    # Only the unchanged streams need attention weights, and these only if the network decides; without, layers compute
    # less.
    mixture = getattr(model, "mixture", None)
    attends = model.config.num_stream_layers > 0 and (mixture is None or bool(mixture.weights[0]))
    unchanged = {name: values[:, :, 0].flatten(0, 1) for name, values in inputs.items()}
    usual = read_streams(model, posts, unchanged, attends)
    changed = read_streams(model, posts, {name: values[:, :, 1:].flatten(0, 2) for name, values in inputs.items()})
    logits = usual["logits"].unsqueeze(1), changed["logits"].unflatten(0, (len(usual["logits"]), -1))
    logits = torch.cat(logits, dim=1)
    none = torch.zeros(len(logits), 0, model.config.window, device=stream_index.device)
    found = {"attention": none} | usual | {"logits": logits, "by_rule": model.find_ruled(logits)}
    return {name: values.unflatten(0, shape) for name, values in found.items()}


def read_streams(
    model: torch.nn.Module, posts: dict[str, torch.Tensor], streams: dict[str, torch.Tensor], attends: bool = False
) -> dict[str, torch.Tensor]:
    """
    Returns `logits`, with states `state_logits`, and if asked `attention` (streams, layers, window) of `streams`
    (streams, ...) of a row of `posts` (posts, ...). Streams without posts are not computed, and have 0.
    """
    index = streams["stream_index"]
    found: dict[str, torch.Tensor] = {}
    num_slots = min(SLOTS_AT_ONCE, TOKENS_AT_ONCE // posts["attention_mask"].shape[-1])
    for chosen in (index[:, -1] >= 0).nonzero().flatten().split(max(1, num_slots // index.shape[1])):
        part = {name: values[chosen] for name, values in streams.items()}
        # The pass has only the posts and the slots that it reads.
        absent = int((part["stream_index"] < 0).sum(1).min())
        part |= {name: part[name][:, absent:] for name in ("stream_index", "elapsed") if name in part}
        read = torch.cat([part[name].flatten() for name in INDICES & part.keys()]).unique()
        read = read[read >= 0]
        places = {name: torch.searchsorted(read, part[name].contiguous()) for name in INDICES & part.keys()}
        part |= {name: torch.where(part[name] < 0, -1, values) for name, values in places.items()}
        output = model(
            **{name: values[read.to(values.device)].unsqueeze(0) for name, values in posts.items()},
            **{name: values.unsqueeze(0) for name, values in part.items()},
            output_stream_attentions=attends,
        )
        answers = {name: output[name][0] for name in ("logits", "state_logits") if output.get(name) is not None}
        if attends:
            # The attention of the newest posts.
            layers = [weights[0, :, :, -1].float().mean(1).to(index.device) for weights in output.stream_attentions]
            answers["attention"] = nn.functional.pad(torch.stack(layers, 1), (absent, 0))
        for name, values in answers.items():
            empty = values.new_zeros(len(index), *values.shape[1:])
            found.setdefault(name, empty)[chosen.to(values.device)] = values
    return found


def explain_posts(
    timeline: Timeline,
    outputs: dict[str, torch.Tensor],
    config: PreTrainedConfig,
    calibration: dict[str, Any] | None,
) -> Iterator[dict]:
    """Yields the explanation of each post of a timeline, from what [`explain_streams`] returns for it."""
    positions = timeline.input_positions
    probabilities, _ = decide(outputs["logits"], calibration)
    measured = {"effects": probabilities, "log_odds_effects": log_odds(outputs["logits"], calibration)}
    by_rule = (outputs["by_rule"][:, :1] | outputs["by_rule"][:, 1:]).tolist()
    effects = {name: (values[:, :1] - values[:, 1:]).transpose(1, 2).tolist() for name, values in measured.items()}
    names = class_names(config)
    answers = read_answers(outputs["logits"][:, 0], config, calibration, outputs.get("state_logits"))
    attention = outputs["attention"].tolist()
    for post, (text, answer) in enumerate(zip(timeline.texts, answers, strict=True)):
        stream = positions[max(0, post - config.window + 1) : post + 1]
        absent = config.window - len(stream)
        yield {
            "text": text,
            "timestamp": None if timeline.timestamps is None else timeline.timestamps[post],
            **answer,
            "stream": stream,
            "attention": [weights[absent:] for weights in attention[post]],
            **{
                measure: {
                    name: [
                        None if ruled else value
                        for value, ruled in zip(values[absent:], by_rule[post][absent:], strict=True)
                    ]
                    for name, values in zip(names, posts[post], strict=True)
                }
                for measure, posts in effects.items()
            },
        }


class StreamClassificationPipeline(Pipeline):
    """
    Classifies every post of timelines in the context of the posts before it (Tseriotou, Tsakalidis and Liakata, 2024).

        pipe = pipeline("stream-classification", model=folder_or_hub_id, trust_remote_code=True)
        pipe({"text": ["so happy today", "leave me alone"], "timestamp": ["2024-05-01", "2024-05-02T22:10"]})
        # [{"label": "No-Switch", "score": 0.98}, {"label": "Switch", "score": 0.91}]

    A timeline is a dict, or another mapping such as a row of a `Dataset`, with `text`, a list of strings, and lists
    of the same length: `timestamp`, times as [`~times_tempoformer.to_seconds`] takes them, if the model was trained
    with times; `speaker`, strings, or None for one that is not known, if it reads who speaks; and `state`, classes or
    numbers, or None for one that is not known, if it reads the known states of earlier posts. Other keys are not read,
    such as an id and labels; one that is nearly one of these, where that is missing, is refused.
    Posts that are out of order are sorted by time, with one warning; results come in the order of the input. A
    timeline may also be a [`~timeline_tempoformer.Timeline`], to which its logits and explanations are then attached,
    and whose `vectors`, if there are any, are read instead of its texts. One with a member of the post model as
    `held_out` is classified, not explained, by that member alone.

    The label is the most probable class, and its probability is the score; with decision thresholds another class can
    be more probable, and `reason` then says why. The answers of a model with a watched class begin with
    `watched_probability`, the probability of that class; `alarm`, True if this probability is at least
    `watched_threshold`, which may differ from the threshold of the label (None with three classes or more and no alarm
    for the class; then a post is an alarm if its label is the class); and `watched`, the name of the class. A
    model that has learned states also answers the `state` of each post: a dict with `label`, the likeliest, `score`
    and `probabilities`, and if states are numbers their `mean`. The options can be given to a call or to the
    constructor.

    Args:
        batch_size (`int`, *optional*, defaults to 8): Rows in a batch, at least 1; timelines share batches. The post
            model encodes the posts of 16 batches at once, sorted by length.
        targets_per_row (`int`, *optional*, defaults to 64):
            The number of posts classified in a row, at least 1; fewer take less memory.
        top_k (`int`, *optional*):
            At least 1. Return a list of the `top_k` best labels of each post, best first, instead of the best one.
        calibrated (`bool`, *optional*, defaults to `True`):
            If True, [`decide`] gets the `calibration` of the model's configuration, if it has one.
        truncation (`bool`, *optional*, defaults to `True`):
            Must be `True`, since longer posts are always truncated to what the model reads, with a warning.
        num_workers (`int`, *optional*):
            Accepted as in other pipelines, but not used, since posts are tokenized in this process.
    """

    _load_processor = False
    _load_image_processor = False
    _load_feature_extractor = False
    _load_tokenizer = True
    default_batch_size = 8

    def _sanitize_parameters(
        self,
        targets_per_row: int | None = None,
        top_k: int | None = None,
        calibrated: bool | None = None,
        truncation: bool | None = None,
    ):
        if truncation not in (None, True):
            raise ValueError(
                f"`truncation` must be True, as posts are cut to what the model reads, got {truncation!r}."
            )
        check_at_least_1(targets_per_row=targets_per_row, top_k=top_k)

        def given(**options: Any) -> dict[str, Any]:
            return {name: value for name, value in options.items() if value is not None}

        return given(targets_per_row=targets_per_row), {}, given(top_k=top_k, calibrated=calibrated)

    def __call__(
        self,
        inputs: Mapping | Timeline | Iterable[Mapping | Timeline],
        batch_size: int | None = None,
        num_workers: int | None = None,
        **kwargs,
    ):
        """
        Classifies timelines.

        Args:
            inputs (`dict`, [`~timeline_tempoformer.Timeline`], or an iterable of them): A timeline, a list of
                timelines, or any other iterable of them. A list of messages of a chat, which have a `role` and a
                `content`, is a timeline, too, and so is a dict with such a list as `messages`.
            batch_size, num_workers, kwargs: The options, instead of the constructor's.

        Returns:
            For a timeline, a list with a dict of `label`, `score` (0 to 1) and what else the model answers for each
            post, in the order of the input; for a list, a list of these; for any other iterable, an iterator that
            reads it as it goes. Raises a `ValueError` that names the timeline, the post and the value for input that
            is not a timeline, and for logits that are not finite.
        """
        if num_workers:
            logger.warning_once("`num_workers` is not used: posts are tokenized in this process.")
        return self.answer(inputs, batch_size, kwargs, explains=False)

    def explain(
        self,
        inputs: Mapping | Timeline | Iterable[Mapping | Timeline],
        batch_size: int | None = None,
        targets_per_row: int | None = None,
        calibrated: bool | None = None,
    ):
        """
        Classifies timelines, and explains the labels: by the measured effects of changing one thing at a time, and by
        attention, which shows where the model looked, and not why it decided so.

        Args:
            inputs, batch_size, targets_per_row, calibrated: The arguments of a call.

        Returns:
            The result of a call, with its errors, but each post is a dict of plain Python with

            - `text`, and `timestamp` in seconds, None without times.
            - all that a call returns, the `probabilities` of all classes, a dict, and the calibration's `thresholds`
              by class, or None without any.
            - `stream`, a list of the posts of its stream: indices in the input, oldest first, the post itself last.
            - `attention`, for each stream layer a list of how much the post looked at each of `stream`: the mean over
              heads, summing to 1. Of no layer where the network has no weight among the model's experts.
            - `effects`, a dict from each class to a list: the probability of the class minus its probability after one
              change. The changes are, for each earlier post of `stream`, to leave it out (the posts before it move up
              by one, and one older post enters); then to give the post itself an empty text; to put no time between it
              and the post before; and to make the post the first of its timeline, which trees read. 0 where
              nothing changes; None where the post is a first one, or the change makes it one, and the class of first
              posts is a rule (`config.first_posts`).
            - `log_odds_effects`, the same for `log(p / (1 - p))`, also where a probability is close to 0 or 1.
        """
        options = {"targets_per_row": targets_per_row, "calibrated": calibrated}
        return self.answer(inputs, batch_size, options, explains=True)

    def answer(
        self,
        inputs: Mapping | Timeline | Iterable[Mapping | Timeline],
        batch_size: int | None,
        options: dict[str, Any],
        explains: bool,
    ):
        """Returns the results of a call or of `explain` for one timeline, a list or another iterable."""
        check_at_least_1(batch_size=batch_size)
        preprocess, _, postprocess = self._sanitize_parameters(**options)
        is_one = isinstance(inputs, (Mapping, Timeline, str)) or is_chat(inputs)
        results = self.classify(
            [inputs] if is_one else inputs,
            batch_size or self._batch_size or self.default_batch_size,
            {**self._preprocess_params, **preprocess, "explains": explains},
            {**self._postprocess_params, **postprocess, "explains": explains},
        )
        if is_one:
            (result,) = results
            return result
        return list(results) if isinstance(inputs, (list, tuple)) else results

    def classify(
        self, timelines: Iterable[Mapping | Timeline], batch_size: int, preprocess: dict, postprocess: dict
    ) -> Iterator[list[dict]]:
        """
        Yields the results of each timeline, as soon as there are rows enough to encode. In the end a warning says how
        many posts were truncated.
        """
        num_rows = batch_size * (BATCHES_AT_ONCE if self.model.tempoformer.reads_vectors else 1)
        waiting: list[dict] = []
        num_posts = num_cut = 0
        for number, timeline in enumerate(timelines):
            entry = self.preprocess(timeline, number=number, **preprocess)
            waiting.append(entry)
            num_posts += len(entry["timeline"])
            num_cut += entry["truncated"]
            if sum(len(entry["rows"]) for entry in waiting) >= num_rows:
                yield from self.finish(waiting, num_rows, batch_size, postprocess)
                waiting = []
        yield from self.finish(waiting, num_rows, batch_size, postprocess)
        if num_cut:
            logger.warning(f"Truncated {num_cut} of {num_posts} posts to {self.max_tokens} tokens.")

    def finish(self, entries: list[dict], num_rows: int, batch_size: int, postprocess: dict) -> Iterator[list[dict]]:
        """
        Yields the results of what `preprocess` returned for timelines, whose rows share batches. The posts of
        `num_rows` rows are encoded at once.
        """
        explains = postprocess["explains"]
        rows = (row for entry in entries for row in entry["rows"])
        while some := list(islice(rows, num_rows)):
            if self.model.tempoformer.reads_vectors:
                self.encode([row for row in some if "post_embeds" not in row])
            for (timed, _), neighbours in groupby(some, lambda row: ("timestamps" in row, "held_out" in row)):
                # One post more, because an older post enters where an explanation leaves one out.
                collator = StreamCollator(self.tokenizer, self.model.config.window + explains, timed=timed)
                while batch := list(islice(neighbours, batch_size)):
                    outputs = self.forward(dict(collator(batch)), explains=explains)
                    for number, row in enumerate(batch):
                        num_targets = len(posts_of(row)) - row["num_context"]
                        row["outputs"] = {name: tensor[number, :num_targets] for name, tensor in outputs.items()}
                        # A long timeline has many rows.
                        row.pop("post_embeds", None)
        for entry in entries:
            yield self.postprocess(entry, **postprocess)

    def encode(self, rows: list[dict[str, Any]]):
        """Replaces the tokens of rows by the vectors of their posts, and encodes each post once."""
        if not rows:
            return
        names = [name for name in self.tokenizer.model_input_names if name in rows[0]]
        of_rows = [list(zip(*(map(tuple, row.pop(name)) for name in names), strict=True)) for row in rows]
        distinct = sorted({post: None for posts in of_rows for post in posts}, key=lambda post: len(post[0]))
        vectors = []
        for first in range(0, len(distinct), POSTS_AT_ONCE):
            chosen = distinct[first : first + POSTS_AT_ONCE]
            posts = [dict(zip(names, map(list, post), strict=True)) for post in chosen]
            padded = self.tokenizer.pad(posts, padding_side="right", return_tensors="pt")
            vectors.append(self.forward(dict(padded), encodes=True)["post_embeds"])
        vectors, number = torch.cat(vectors), {post: number for number, post in enumerate(distinct)}
        for row, posts in zip(rows, of_rows, strict=True):
            row["post_embeds"] = vectors[[number[post] for post in posts]]

    @property
    def max_tokens(self) -> int:
        """The number of tokens that longer posts are truncated to."""
        return min(self.tokenizer.model_max_length, self.model.max_tokens)

    def preprocess(
        self, timeline: Mapping | Timeline, number: int = 0, targets_per_row: int = 64, explains: bool = False
    ) -> dict[str, Any]:
        """Returns the timeline, its rows, and how many posts were cut."""
        if not isinstance(timeline, Timeline):
            timeline = read_timeline(timeline, number, self.model.config.reads_known_states)
        num_cut = 0
        if timeline.vectors is None:
            columns, num_cut = timeline.tokenize(self.tokenizer, self.max_tokens)
        else:
            columns = {"post_embeds": timeline.vectors}
            columns |= {} if timeline.timestamps is None else {"timestamps": timeline.timestamps}
        config = self.model.config
        if config.reads_known_states:
            columns["earlier_states"] = timeline.earlier_states(config)
        # An explanation needs two posts of each speaker, as it leaves one of them out.
        speaker_posts = timeline.speaker_posts(1 + explains) if config.reads_speakers else None
        rows = list(cut_rows(columns, config.window + explains, targets_per_row, speaker_posts))
        if timeline.held_out is not None and not explains:
            rows = [{**row, "held_out": timeline.held_out} for row in rows]
        return {"timeline": timeline, "rows": rows, "truncated": num_cut}

    def _forward(
        self, model_inputs: dict[str, torch.Tensor], explains: bool = False, encodes: bool = False
    ) -> dict[str, torch.Tensor]:
        if encodes:
            row = self.model.post_inputs(**{name: values.unsqueeze(0) for name, values in model_inputs.items()})
            return {"post_embeds": row["post_embeds"][0]}
        if explains:
            empty = self.tokenizer([""], return_tensors="pt").to(self.device)
            return explain_streams(self.model, empty, **model_inputs)
        output = self.model(**model_inputs)
        return {name: output[name] for name in ("logits", "state_logits") if output.get(name) is not None}

    def postprocess(
        self, entry: dict, top_k: int | None = None, calibrated: bool = True, explains: bool = False
    ) -> list:
        """Returns a dict, or with `top_k` a list of dicts, for each post in the order of the input."""
        timeline, config = entry["timeline"], self.model.config
        if not len(timeline):
            timeline.logits, timeline.explanations = torch.zeros(0, config.num_labels), []
            return []
        parts = [row["outputs"] for row in entry["rows"]]
        outputs = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        logits, calibration = outputs["logits"], config.calibration if calibrated else None
        names = [f"Timeline {timeline.timeline_id!r}, post {row}" for row in timeline.input_rows]
        check_finite(logits.flatten(1), names.__getitem__)
        timeline.logits, timeline.state_logits = (
            (logits[:, 0] if explains else logits).float(),
            outputs.get("state_logits"),
        )
        if explains:
            answers = timeline.explanations = list(explain_posts(timeline, outputs, config, calibration))
        else:
            answers = [
                {name: value for name, value in answer.items() if name not in ("probabilities", "thresholds")}
                for answer in read_answers(logits, config, calibration, timeline.state_logits)
            ]
            if top_k:
                probabilities, ranked = decide(logits, calibration)
                best = ranked[:, :top_k]
                columns = (answers, best.tolist(), probabilities.gather(-1, best).tolist())
                answers = [
                    [
                        {**answer, "label": config.id2label[label], "score": score}
                        for label, score in zip(labels, scores, strict=True)
                    ]
                    for answer, labels, scores in zip(*columns, strict=True)
                ]
        return timeline.in_input_order(answers)


def check_at_least_1(**numbers: int | None):
    """Raises a `ValueError` for a number below 1; None stands for a default."""
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise ValueError(f"`{name}` must be at least 1, got {number}.")


def is_chat(values: Any) -> bool:
    """Tells whether a value is a timeline of messages of a chat."""
    return isinstance(values, (list, tuple)) and len(values) > 0 and is_message(values[0])


def read_chat(messages: Sequence[Any], number: int) -> dict[str, list]:
    """Returns messages of a chat as a timeline, with `timestamp` and `state` where a message has one."""
    posts = list(map(read_message, messages))
    for row, (message, post) in enumerate(zip(messages, posts, strict=True)):
        if post is message:
            raise ValueError(f"Timeline {number}, message {row} must have a 'role' and a 'content', got {post!r:.80}.")
    names = ["text", "speaker", *(name for name in ("timestamp", "state") if any(name in post for post in posts))]
    return {name: [post.get(name) for post in posts] for name in names}


def read_timeline(values: Any, number: int, reads_states: bool) -> Timeline:
    """Reads a timeline as the pipeline takes it. Raises a `ValueError` that names what is wrong."""
    if isinstance(values, Mapping) and "text" not in values and is_chat(values.get("messages")):
        values = values["messages"]
    if is_chat(values):
        values = read_chat(values, number)
    if not isinstance(values, Mapping) or not isinstance(values.get("text"), (list, tuple)):
        raise ValueError(f"Timeline {number} must be a dict with a list of strings as 'text', got {values!r:.80}.")
    roles = ["timestamp", "speaker", *["state"] * reads_states]
    for name in roles:
        # Another case, a plural, spaces and underscores, such as "timestamps"; "speaker_id" is another column.
        near = [key for key in values if "".join(filter(str.isalpha, str(key).lower())).removesuffix("s") == name]
        if near and name not in values:
            raise ValueError(f"Timeline {number} has {near[0]!r}, which is not read: is it {name!r}?")
    texts, (times, speakers, *states) = values["text"], map(values.get, roles)
    for name, cells in zip(roles, (times, speakers, *states), strict=True):
        if cells is not None and not isinstance(cells, (list, tuple)):
            raise ValueError(f"Timeline {number}: {name!r} must be a list of {len(texts)} values, got {cells!r:.80}.")
    try:
        return Timeline.read(number, texts, times, speakers=speakers, states=states[0] if states else None)
    except ValueError as problem:
        raise ValueError(f"Timeline {number}, {problem}") from None


# The registration also serves a model from the Hub, which has only its own code.
if "stream-classification" not in PIPELINE_REGISTRY.get_supported_tasks():
    PIPELINE_REGISTRY.register_pipeline(
        "stream-classification",
        pipeline_class=StreamClassificationPipeline,
        pt_model=AutoModelForSequenceClassification,
        type="text",
    )

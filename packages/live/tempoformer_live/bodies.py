"""The contents of the server's requests and answers. Its description for programs is made from these classes."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, StrictFloat, StrictStr, Tag, model_validator

from modeling_tempoformer import read_message

from .live_classifier import CONTEXTS, MISSING


MAX_POSTS = 100  # posts of a history, and of a timeline to explain
MAX_CHARACTERS = 10_000  # characters of a text

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

    @model_validator(mode="before")
    @classmethod
    def read_message(cls, values: Any) -> Any:
        """Takes messages of a chat, too, with `role` and `content` in the place of `speaker` and `text`."""
        return read_message(values)


class PlacedPost(EarlierPost):
    timeline_id: Id
    post_id: Id


class NewPost(PlacedPost):
    previous_state: KnownState = Field(
        None, description="The state of the speaker's last post, where it has become known since."
    )
    history: list[EarlierPost] = Field([], max_length=MAX_POSTS)


class SeveralPosts(Body):
    posts: list[PlacedPost] = Field(
        description="Posts of one or several whole timelines, in any order. Each is read after the earlier posts of "
        "its timeline in this list, and nothing is remembered."
    )


ONE, SEVERAL = "one post", "several posts"


def kind_of(body: Any) -> str:
    """Returns the tag of the class that reads the body of `POST /score`."""
    return SEVERAL if isinstance(body, dict) and "posts" in body else ONE


ScoreBody = Annotated[Annotated[NewPost, Tag(ONE)] | Annotated[SeveralPosts, Tag(SEVERAL)], Discriminator(kind_of)]


class State(BaseModel):
    label: str
    score: float = Field(description="The probability of the state.")
    probabilities: dict[str, float] = Field(description="The probability of each state.")
    mean: float | None = Field(None, description="The mean of the states, if they are numbers.")


class Decision(BaseModel):
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


class Answer(Decision):
    stream_length: int = Field(description="The number of posts that were read, including this one.")
    context: Literal[*CONTEXTS] = Field(description="The source of the earlier posts.")


class PostIds(BaseModel):
    timeline_id: str
    post_id: str


class ScoredPost(Decision, PostIds):
    pass


class Answers(BaseModel):
    answers: list[ScoredPost] = Field(description="The answer about each post, in the order of the request.")


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

"""
The fields of the tasks that `tempoformer select` writes for Label Studio, doccano and Prodigy, and by which their
exports are read.
"""

# Fields of a task beside its tool's own
STRETCH, ANNOTATOR, CONTEXT, POSTS = FIELDS = ("stretch", "annotator", "context", "posts")
# Fields of a post: its place in its timeline, counting from 1, its name in the file that it was chosen from, and a
# heading for people who label.
NUMBER, POST_ID, TURN = "post_number", "post_id", "turn"
TIMELINE, LABEL = "timeline_id", "label"
# The names of the choices in Label Studio end in the number of the post in its task, counting from 0.
CHOICE = "label_"
ACCEPTED = "accept"

"""Tables of posts and texts, and the timelines, rows and splits that are made of them."""

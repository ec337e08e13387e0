"""Tables of posts and texts, and the timelines, rows and splits made from them."""

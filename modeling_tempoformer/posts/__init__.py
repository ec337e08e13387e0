"""Tables of posts, and the timelines, rows and splits made from them."""

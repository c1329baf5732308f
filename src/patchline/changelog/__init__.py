"""The changelog: news fragments, what is known of every carried patch, and the file that is generated from both."""

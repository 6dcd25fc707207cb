"""The answer to a text without dumps: what it shows, what that means, whom to look at and what to collect next."""

"""The answer to a text without dumps: what its lines show, which ranks to examine and what to collect next."""

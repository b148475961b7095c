"""From a request to an answer: who asks, which page, and how it is sent."""

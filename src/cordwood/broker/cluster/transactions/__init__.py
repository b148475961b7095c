"""Transactions over brokers: who coordinates, who is asked, and how markers reach the leaders."""

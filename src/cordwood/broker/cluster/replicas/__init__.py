"""The replicas of this broker: their logs, their disk work and their fetches from leaders."""

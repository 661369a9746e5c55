"""Subscriptions to several event types in one object, without a broker."""

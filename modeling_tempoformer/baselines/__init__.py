"""The methods that the TempoFormer paper compares itself with."""

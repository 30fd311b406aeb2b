"""How much work: the FLOPs and bytes of each operator, and the plan that assembles them for a model."""

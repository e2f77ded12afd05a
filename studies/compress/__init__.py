"""A real encoder cut to budgets, beside what else one might do, and the claims of EFTNAS about it."""

"""Pictures of simulations as SVG or PNG, drawn by matplotlib (the extra ``plots``)."""

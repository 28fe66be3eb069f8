"""From raw features to prepared ones: scaling, quantiles and projection, fitted in streaming passes."""

"""What CNTK's learners do to parameters and gradients. May import the other operators."""

"""CNTK's networks, configs and readers, lowered to op lists."""

"""Steps that are bound by computing their structs: for other shapes, and for other addresses. May
import the other rooms of this floor."""

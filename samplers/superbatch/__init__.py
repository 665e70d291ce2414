"""The batches of many steps sampled together, hop by hop, where who samples has no graph at hand: whoever has the columns says what nodes drew."""

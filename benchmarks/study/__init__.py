"""The cells of a study of whole trainings: what they do, their table and their pictures."""

"""What is hosted: the World protocol and the worlds that ship. Never moves or owners."""

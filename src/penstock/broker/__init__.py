"""Assembly: builds and joins the rooms, starts and stops them in order."""

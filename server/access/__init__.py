"""Who may use the server: roles, names of users, limits of the users' socket, public values."""

"""Commands on other hosts over SSH, for private clusters and for the installation of hosts."""

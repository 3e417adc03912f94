"""Run migrations. Imported only if there is one to run, because Alembic is slow to import."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Engine

from pliant.core.support.base_error import PliantError


class UnknownVersionError(PliantError):
    """The database has a schema version for which this release of Pliant has no migration."""


def upgrade(engine: Engine, version: str) -> None:
    """Migrate the tables to a version, in one transaction.

    Raises:
        UnknownVersionError: if the database has a version without a migration.
    """
    config = alembic_config()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, version)
        except CommandError as error:
            raise UnknownVersionError(str(error)) from error


def newest() -> str | None:
    """Return the newest schema version that has a migration; None if there is none."""
    return ScriptDirectory.from_config(alembic_config()).get_current_head()


def alembic_config() -> Config:
    """Return the settings of Alembic, which has no ini file here."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config

"""Feeds a table and its table of rejected rows from a topic: carries out `feed_steps`."""

import uuid
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from cordwood.errors import ConfigError, CordwoodError
from cordwood.spark.decoding.row_decoding import RowFormat
from cordwood.spark.decoding.schema_evolution import SchemaEvolution
from cordwood.spark.jobs.feed_steps import (
    FeedStep,
    StepKind,
    next_step,
    replayed_files,
    with_replayed,
)
from cordwood.spark.jobs.row_choice import TableRows
from cordwood.spark.jobs.topic_span import TopicSpan
from cordwood.spark.tables.lake_files import remove_directory
from cordwood.spark.tables.lake_table import LakeTable, TableState
from cordwood.spark.tables.staging import Staged, StagePlan, rejected_schema
from cordwood.value_class import dataclass, replace

_ROUNDS_MAX: Final = 100  # how often one part may meet schemas that change the table


class Stager(Protocol):
    """Stages rows as files; with Spark, or here."""

    def stage_span(self, span: TopicSpan, plan: StagePlan) -> Staged: ...

    def stage_files(self, files: Sequence[str], plan: StagePlan) -> Staged: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedCounts:
    """What a feed has committed so far."""

    records: int = 0
    rejected: int = 0
    files: int = 0
    commits: int = 0
    replayed: int = 0

    def plus(self, staged: Staged, *, has_rejected: bool) -> "FeedCounts":
        rejected = staged.rejected if has_rejected else ()
        return replace(
            self,
            records=self.records + sum(file.rows for file in staged.accepted),
            rejected=self.rejected + sum(file.rows for file in rejected),
            files=self.files + len(staged.accepted) + len(rejected),
            commits=self.commits + 1,
        )


class TableFeed:
    """Two tables and how far they are. For one thread of the driver.

    `rows` is the format of the table's rows; it changes as `evolution` says.
    `open_rows` returns the rows that stored settings describe, with the schemas they need.
    """

    def __init__(
        self,
        main: LakeTable,
        rejected: LakeTable,
        stager: Stager,
        *,
        rows: TableRows,
        evolution: SchemaEvolution,
        open_rows: Callable[[TableState], TableRows],
    ) -> None:
        self._main = main
        self._rejected = rejected
        self._stager = stager
        self._open_rows = open_rows
        self._evolution = evolution
        self.rows = rows
        self.counts = FeedCounts()
        self.held = main.load()
        self._held_rejected = rejected.load()

    def next_step(self, span: TopicSpan, *, commit_records: int) -> FeedStep:
        """What to do next for a span that begins where the table ends."""
        names: list[str] = []
        if replayed_files(self.held) and self._held_rejected is not None:
            names = [_name(path) for path in self._rejected.files()]
        return next_step(span, self.held, self._held_rejected, names, commit_records=commit_records)

    def take(self, step: FeedStep) -> None:
        """Take a step that is not IDLE."""
        match step.kind:
            case StepKind.FINISH_REPLAY:
                self._finish_replay(step.files)
            case StepKind.RECOVER:
                assert step.span is not None
                assert self._held_rejected is not None
                self.rows = self._open_rows(self._held_rejected)
                self._write(step.span, is_recovery=True)
            case _:
                assert step.span is not None
                self._write(step.span, is_recovery=False)

    # --- records of the topic --------------------------------------------------------------------

    def _write(self, span: TopicSpan, *, is_recovery: bool) -> None:
        run_id = uuid.uuid4().hex
        try:
            staged = self._staged(
                lambda plan: self._stager.stage_span(span, plan), run_id, changes=not is_recovery
            )
            settings = self.rows.settings()
            has_rejected = bool(staged.rejected) and not is_recovery
            if has_rejected:
                state = span.state(self._held_rejected, settings)
                self._rejected.commit(
                    state, rejected_schema(), run_id=run_id, added=staged.rejected
                )
                self._held_rejected = self._rejected.load()
            self._main.commit(
                span.state(self.held, settings),
                self._plan(run_id).accepted_schema,
                run_id=run_id,
                added=staged.accepted,
            )
        finally:
            self._discard(run_id)
        self.held = self._main.load()
        self.counts = self.counts.plus(staged, has_rejected=has_rejected)

    def _staged(
        self, stage: Callable[[StagePlan], Staged], run_id: str, *, changes: bool
    ) -> Staged:
        """Stage, and again if what was met changes the rows.

        No commit names files of a failed or repeated round yet, so they can be removed.
        """
        for _ in range(_ROUNDS_MAX):
            try:
                staged = stage(self._plan(run_id))
            except BaseException:
                self._remove_staged(run_id)
                raise
            form = self.rows.form
            if changes:
                form = self._evolution.with_ids(form, dict(staged.missing))
                form = self._evolution.with_fields(form, staged.found)
            if form == self.rows.form:
                if staged.missing:
                    raise CordwoodError(
                        f"{self._main.name}: values need schemas that the table does not know"
                    )
                return staged
            self._remove_staged(run_id)
            self.rows = replace(self.rows, form=form)
        raise CordwoodError(f"{self._main.name}: its schema did not settle")

    def _plan(self, run_id: str) -> StagePlan:
        return StagePlan(
            form=self.rows.form,
            accepted_directory=self._main.staging(run_id),
            rejected_directory=self._rejected.staging(run_id),
            by=self.rows.partition_by,
        )

    def _remove_staged(self, run_id: str) -> None:
        """Remove files of a run that has committed nothing."""
        for table in (self._main, self._rejected):
            remove_directory(table.staging(run_id))
        self._discard(run_id)

    def _discard(self, run_id: str) -> None:
        self._main.discard(run_id)
        self._rejected.discard(run_id)

    # --- rejected rows, again --------------------------------------------------------------------

    def replay(self) -> None:
        """Decode the rejected rows again, and move those that fit to the table."""
        if self._held_rejected is None or self.held is None:
            return
        files = self._rejected.files()
        if not files:
            return
        # What the registry did not know it may know now.
        self.rows = replace(self.rows, form=_hopeful(self.rows))
        run_id = uuid.uuid4().hex
        try:
            staged = self._staged(
                lambda plan: self._stager.stage_files(files, plan), run_id, changes=True
            )
            if not staged.accepted:
                self._remove_staged(run_id)
                return
            names = [_name(path) for path in files]
            self._main.commit(
                replace(self.held, settings=with_replayed(self.rows.settings(), names)),
                self._plan(run_id).accepted_schema,
                run_id=run_id,
                added=staged.accepted,
            )
            self.held = self._main.load()
            self._remove_rejected(staged, files, run_id)
        finally:
            self._discard(run_id)
        moved = sum(file.rows for file in staged.accepted)
        self.counts = replace(
            self.counts,
            replayed=self.counts.replayed + moved,
            commits=self.counts.commits + 1,
        )

    def _finish_replay(self, names: frozenset[str]) -> None:
        """Remove the rows that a killed run has replayed."""
        assert self.held is not None
        files = [path for path in self._rejected.files() if _name(path) in names]
        self.rows = self._open_rows(self.held)
        run_id = uuid.uuid4().hex
        try:
            staged = self._staged(
                lambda plan: self._stager.stage_files(files, plan), run_id, changes=False
            )
            self._remove_rejected(staged, files, run_id)
        finally:
            self._discard(run_id)

    def _remove_rejected(self, staged: Staged, files: Sequence[str], run_id: str) -> None:
        assert self._held_rejected is not None
        self._rejected.commit(
            self._held_rejected,
            rejected_schema(),
            run_id=run_id,
            added=staged.rejected,
            removed=files,
        )
        self._held_rejected = self._rejected.load()


def check_replayable(table: LakeTable, *, is_parquet: bool) -> None:
    """Raise `ConfigError` for a table whose files cannot be replaced."""
    if is_parquet:
        raise ConfigError(
            "table", table.name, "rows of a Parquet table cannot be removed: use delta or iceberg"
        )


def _hopeful(rows: TableRows) -> RowFormat:
    form = rows.form
    return replace(
        form,
        key=replace(form.key, unknown=frozenset()),
        value=replace(form.value, unknown=frozenset()),
    )


def _name(path: str) -> str:
    return path.rpartition("/")[2]

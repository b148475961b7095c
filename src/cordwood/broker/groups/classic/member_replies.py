"""Answering the joins and syncs that members wait for."""

from cordwood.broker.groups.classic.classic_answers import join_error, sync_error
from cordwood.broker.groups.classic.classic_member import ClassicMember
from cordwood.broker.groups.session_timers import SessionTimers
from cordwood.broker.net.loop.scheduler import Scheduler
from cordwood.broker.net.requests.request import Deferred, Response
from cordwood.protocol.error_code import ErrorCode


class MemberReplies:
    """Sends answers to members that wait. Owned by one group.

    Answers are sent by way of the scheduler, never during a change of the group: an answer may
    bring in the next request at once.

    A session does not expire while its member waits for us. So every answer to a member that
    stays in the group restarts its session.
    """

    def __init__(self, scheduler: Scheduler, sessions: SessionTimers) -> None:
        self._scheduler = scheduler
        self._sessions = sessions

    def hold_join(self, member: ClassicMember, reply: Deferred) -> None:
        """Keep a join. The client gave up an earlier one together with its connection."""
        earlier, member.join_reply = member.join_reply, reply
        code = ErrorCode.rebalance_in_progress
        self._send(earlier, join_error(code, member.member_id))

    def hold_sync(self, member: ClassicMember, reply: Deferred) -> None:
        """Keep a sync. The client gave up an earlier one together with its connection."""
        earlier, member.sync_reply = member.sync_reply, reply
        self._send(earlier, sync_error(ErrorCode.rebalance_in_progress))

    def answer_join(self, member: ClassicMember, answer: Response) -> None:
        reply, member.join_reply = member.join_reply, None
        self._send(reply, answer)
        self.restart_session(member)

    def answer_sync(self, member: ClassicMember, answer: Response) -> None:
        """Answer if the member waits for it."""
        reply, member.sync_reply = member.sync_reply, None
        if reply is not None:
            self._send(reply, answer)
            self.restart_session(member)

    def dismiss(self, member: ClassicMember, code: ErrorCode, member_id: str) -> None:
        """Refuse everything that a member waits for that is no longer in the group."""
        self._sessions.forget(member.member_id)
        join, member.join_reply = member.join_reply, None
        sync, member.sync_reply = member.sync_reply, None
        self._send(join, join_error(code, member_id))
        self._send(sync, sync_error(code))

    def restart_session(self, member: ClassicMember) -> None:
        self._sessions.expect(member.member_id, member.session_timeout_ms)

    def _send(self, reply: Deferred | None, answer: Response) -> None:
        def send() -> None:
            if reply is not None:
                reply.resolve(answer)

        if reply is not None:
            self._scheduler.call_soon(send)

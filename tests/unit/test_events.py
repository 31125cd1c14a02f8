"""Words for people can hold anything and are recorded all the same."""

from msgspec import Raw

from outlast import events


def test_lone_surrogates_in_words_are_recorded_as_escapes() -> None:
    error = events.ErrorRecord("x.Y", "a\udc97", "unknown", Raw(b"[1]"), traceback="\ud800\0")
    for event in (
        events.StepInDoubt(1, "b\0\udc97", error),
        events.StepReconciled("unknown", "b\0\udc97"),
        events.StepSettled("failed", Raw(b"null"), "b\0\udc97", "me\ud800"),
        events.RunReleased("b\0\udc97"),
    ):
        back = events.decode(event.kind, event.encode())
        text = getattr(back, "why", "") or getattr(back, "text", "")
        assert text == "b\0\\udc97"
        if isinstance(back, events.StepInDoubt):
            assert back.error is not None
            assert (back.error.message, back.error.traceback) == ("a\\udc97", "\\ud800\0")
            assert bytes(back.error.rebuild) == b"[1]"

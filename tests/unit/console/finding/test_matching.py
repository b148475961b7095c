"""Which rows of a batch match: the same as if each record were looked at alone."""

from hypothesis import given
from hypothesis import strategies as st

from cordwood.console.finding.matching import as_batch, matching
from cordwood.console.finding.query_tree import And, Not, Or, Query, TextMatch
from cordwood.format.record import Record

texts = st.text(alphabet="ab\\.*[é\0\n日", min_size=1, max_size=3)
pieces = st.lists(texts.map(str.encode) | st.binary(max_size=2), max_size=4).map(b"".join)
records = st.builds(
    lambda key, value, header: Record(key=key, value=value, headers=[("h", header)]),
    st.none() | pieces,
    st.none() | pieces,
    st.none() | pieces,
)
terms = st.builds(
    lambda field, text, is_whole: TextMatch(
        field=field, text=text, is_whole=is_whole, header="h" if field == "header" else None
    ),
    st.sampled_from(["any", "key", "value", "header"]),
    texts,
    st.booleans(),
)
queries: st.SearchStrategy[Query] = st.recursive(
    terms,
    lambda inner: (
        st.builds(lambda item: Not(item=item), inner)
        | st.builds(lambda items: And(items=tuple(items)), st.lists(inner, min_size=1, max_size=3))
        | st.builds(lambda items: Or(items=tuple(items)), st.lists(inner, min_size=1, max_size=3))
    ),
    max_leaves=6,
)


def is_match(query: Query, record: Record) -> bool:
    match query:
        case And(items=items):
            return all(is_match(item, record) for item in items)
        case Or(items=items):
            return any(is_match(item, record) for item in items)
        case Not(item=item):
            return not is_match(item, record)
        case TextMatch():
            found = {
                "any": [record.key, record.value],
                "key": [record.key],
                "value": [record.value],
                "header": [value for name, value in record.headers if name == query.header],
            }[query.field]
            wanted = query.text.encode()
            return any(
                data is not None and (data == wanted if query.is_whole else wanted in data)
                for data in found
            )
        case _:
            raise AssertionError(query)


@given(queries, st.lists(records, max_size=6))
def test_a_batch_is_answered_as_its_records_are(query: Query, found: list[Record]) -> None:
    numbered = [
        Record(key=r.key, value=r.value, headers=r.headers, offset=n, timestamp_ms=n)
        for n, r in enumerate(found)
    ]

    rows = matching(query, as_batch(numbered), 0)

    assert rows == [n for n, record in enumerate(numbered) if is_match(query, record)]

"""Networks that are ONNX graphs: what they compute, and what may not be in one."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("onnx", reason="onnx is not installed: scripts/setup.sh --extras dev")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper
from onnx_material import WEIGHTS, in_another_file, nemo_graph, small_graph

from svtoolkit.errors import UserError
from svtoolkit.models import build_model
from svtoolkit.models.onnx_graph import check_graph, input_of, open_session

torch.set_num_threads(1)


def network_of(graph, **options):
    content = graph.SerializeToString()
    network = build_model("onnx", embedding_dim=4, graph_bytes=len(content), **options)
    network.load_state_dict({"graph": torch.frombuffer(bytearray(content), dtype=torch.uint8)})
    return network.eval()


def expected(frames: torch.Tensor) -> torch.Tensor:
    return frames.mean(1) @ torch.from_numpy(WEIGHTS)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("fixed", ["B", 1, 2])
def test_a_batch_goes_through_together_or_as_many_at_once_as_the_graph_takes(batch, fixed):
    frames = torch.randn(batch, 50, 80)
    network = network_of(small_graph((fixed, "T", 80), batch=fixed))
    torch.testing.assert_close(network(frames), expected(frames), rtol=1e-5, atol=1e-6)


def test_a_fixed_length_is_given_stretches_that_cover_the_utterance():
    network = network_of(small_graph((1, 20, 80), batch=1))
    exact, short, long = torch.randn(2, 20, 80), torch.randn(1, 8, 80), torch.randn(1, 45, 80)
    torch.testing.assert_close(network(exact), expected(exact), rtol=1e-5, atol=1e-6)
    repeated = torch.cat([short] * 3, 1)[:, :20]
    unit = torch.nn.functional.normalize
    torch.testing.assert_close(network(short), unit(expected(repeated)), rtol=1e-5, atol=1e-6)
    stretches = [unit(expected(long[:, start : start + 20])) for start in (0, 12, 25)]
    torch.testing.assert_close(network(long), torch.stack(stretches).mean(0), rtol=1e-5, atol=1e-6)


def test_bins_first_and_the_number_of_frames():
    frames = torch.randn(3, 30, 80)
    network = network_of(nemo_graph(), output="embs", bins_first=True)
    torch.testing.assert_close(network(frames), expected(frames), rtol=1e-5, atol=1e-6)


def test_the_session_has_the_threads_of_torch_and_is_made_once(monkeypatch):
    import svtoolkit.models.onnx_network as module

    made = []
    monkeypatch.setattr(
        module, "open_session", lambda *content, **options: made.append(options) or open_session(*content, **options)
    )
    network = network_of(small_graph())
    assert made == []
    for _ in range(2):
        network(torch.zeros(1, 30, 80))
    assert [options["threads"] for options in made] == [1]
    torch.set_num_threads(2)
    try:
        network(torch.zeros(1, 30, 80))
    finally:
        torch.set_num_threads(1)
    assert [options["threads"] for options in made] == [1, 2]


def test_what_onnxruntime_refuses_is_one_sentence():
    network = network_of(small_graph())
    with pytest.raises(UserError, match=r"features of shape \(1, 30, 40\) \(Got invalid dimensions") as caught:
        network(torch.zeros(1, 30, 40))
    assert "\n" not in str(caught.value)
    network = network_of(small_graph(size="D"), output="other")
    with pytest.raises(UserError, match="cannot run"):
        network(torch.zeros(1, 30, 80))


def if_node(tensor) -> list:
    """A choice one branch of which holds a tensor as a constant."""
    constant = helper.make_node("Constant", [], ["c"], value=tensor)
    shape = helper.make_tensor_value_info("c", TensorProto.FLOAT, WEIGHTS.shape)
    branch = helper.make_graph([constant], "branch", [], [shape])
    condition = helper.make_node("Constant", [], ["yes"], value=helper.make_tensor("t", TensorProto.BOOL, [], [True]))
    return [condition, helper.make_node("If", ["yes"], ["z"], then_branch=branch, else_branch=branch)]


def sparse_of(tensor):
    graph = small_graph()
    graph.graph.sparse_initializer.add().values.CopyFrom(tensor)
    return graph


def function_of(tensor):
    graph = small_graph(domains=["mine"])
    nodes = [helper.make_node("Constant", [], ["c"], value=tensor)]
    graph.functions.add().CopyFrom(helper.make_function("mine", "f", [], ["c"], nodes, [helper.make_opsetid("", 14)]))
    return graph


def training_of(tensor):
    graph = small_graph()
    graph.training_info.add().algorithm.initializer.add().CopyFrom(tensor)
    return graph


@pytest.mark.parametrize(
    "make",
    [
        lambda tensor: small_graph(weights=tensor),
        lambda tensor: small_graph(extra=[helper.make_node("Constant", [], ["c"], value=tensor)]),
        lambda tensor: small_graph(extra=if_node(tensor)),
        sparse_of,
        function_of,
        training_of,
    ],
    ids=["initializer", "attribute", "subgraph", "sparse", "function", "training"],
)
def test_content_in_another_file_is_refused_wherever_the_tensor_is(make):
    harmless = helper.make_tensor("w", TensorProto.FLOAT, WEIGHTS.shape, WEIGHTS)
    check_graph(make(harmless).SerializeToString())
    hidden = in_another_file()
    hidden.data_location = TensorProto.DEFAULT
    for tensor in (in_another_file(), hidden):
        with pytest.raises(ValueError, match="has its content in another file"):
            check_graph(make(tensor).SerializeToString())


def test_what_is_no_graph():
    whole = small_graph().SerializeToString()
    for content in (b"", b"ORTM" * 10, b"\x08\x08", whole[: len(whole) // 2], b"\xff" * 40, b"\x3a\xff\xff\xff\x7f"):
        with pytest.raises(ValueError, match=r"ONNX file|cut off"):
            check_graph(content)
    deep = b""
    for _ in range(70):  # graph in attribute in node in graph ...
        for key in (0x32, 0x2A, 0x0A):
            size, left = b"", len(deep)
            while left >= 0x80:
                size, left = size + bytes([left & 0x7F | 0x80]), left >> 7
            deep = bytes([key]) + size + bytes([left]) + deep
    head = b"\x3a" + bytes([len(deep) & 0x7F | 0x80, len(deep) >> 7])
    with pytest.raises(ValueError, match="nested more than 64 deep"):
        check_graph(head + deep)


def test_other_versions_and_operators_are_refused_by_onnxruntime():
    newer = small_graph()
    newer.opset_import[0].version = 99
    foreign = small_graph(extra=[helper.make_node("Evil", ["y"], ["z"], domain="evil")], domains=["evil"])
    for graph, found in ((newer, "Opset 99"), (foreign, "evil:Evil")):
        with pytest.raises(ValueError, match=r"onnxruntime [\d.]+ cannot load it") as caught:
            open_session(graph.SerializeToString())
        assert found in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_name_that_is_no_text_is_refused_without_a_word_on_standard_output(capsys):
    foreign = small_graph(extra=[helper.make_node("Evil", ["y"], ["z"], domain="evil")], domains=["evil"])
    with pytest.raises(ValueError, match="cannot load it"):
        open_session(foreign.SerializeToString().replace(b"Evil", b"\xa0vil"))
    assert capsys.readouterr().out == ""


def test_inputs_that_are_no_features():
    def taken(shape, **options):
        return input_of(open_session(small_graph(shape).SerializeToString()), **options)

    assert taken((1, "T", 80)) == ("feats", 80, False, 1, None, None)
    assert taken((1, 50, 80))[1:5] == (80, False, 1, 50)
    assert taken(("B", "T", "F"))[1:5] == (None, False, None, None)
    assert input_of(open_session(nemo_graph().SerializeToString())) == (
        "audio_signal", 80, True, None, None, "length"
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"its inputs are 'feats' tensor\(float\) \['T', 80\]; expected"):
        input_of(open_session(small_graph(("T", 80), batch=80).SerializeToString()))

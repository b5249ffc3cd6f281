"""The tree that ArviZ sees: groups, names, values, and that ArviZ's functions and plots run on it."""

import json
import warnings
from dataclasses import dataclass
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import ptx
from ptx import inference, models
from ptx.dims import stacked_layers
from ptx.models import likelihoods, priors

RNG = np.random.default_rng(0)
TOKENS = RNG.integers(0, 9, size=(16, 5))
MASK = np.arange(5) < RNG.integers(2, 6, size=16)[:, None]
LABELS = (TOKENS[:, 0] > 4).astype(int)
CLASSIFIER = models.bayesian(
    models.Transformer(vocab_size=9, max_length=5, num_layers=2, num_heads=2, width=4, num_outputs=2),
    priors.normal(),
    likelihoods.categorical,
)
SCHOOLS = ptx.Data(np.array([15.0, 10, 16, 11, 9, 11, 10, 18]), np.array([28.0, 8, -3, 7, -1, 1, 18, 12]))
NUTS = inference.NUTS(num_draws=60, num_warmup=40, num_chains=2, max_tree_depth=3)
LONGER = inference.NUTS(num_draws=60, num_warmup=300, num_chains=2)  # LOO needs tails without repeated draws


def schools(inputs, targets=None):
    """Eight schools, non-centred, with a constrained site and a deterministic one."""
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfNormal(5))
    with numpyro.plate("school", inputs.shape[0]):
        z = numpyro.sample("z", dist.Normal(0, 1))
        theta = numpyro.deterministic("theta", mu + tau * z)
        numpyro.sample("y", dist.Normal(theta, inputs), obs=targets)


def quiet(rng_key, model, data, engine):
    """`infer` on a short run, its findings left to the attributes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return ptx.infer(rng_key, model, data, engine, progress=False)


@pytest.fixture(scope="module")
def classified():
    posterior = quiet(0, CLASSIFIER, ({"tokens": TOKENS, "mask": MASK}, LABELS), NUTS)
    return posterior, ptx.predict(1, posterior, {"tokens": TOKENS, "mask": MASK})


@pytest.fixture(scope="module")
def schooled():
    posterior = quiet(0, schools, SCHOOLS, LONGER)
    return posterior, ptx.predict(1, posterior, SCHOOLS.inputs)


@pytest.fixture(scope="module")
def trees(classified, schooled):
    return {
        name: ptx.to_datatree(pair[0], predictive=pair[1])
        for name, pair in (("ours", classified), ("schools", schooled))
    }


def test_groups_values_and_dims_of_a_transformer(classified, trees):
    posterior, predictive = classified
    tree = trees["ours"]
    assert list(tree.children) == [
        "posterior",
        "sample_stats",
        "posterior_predictive",
        "posterior_outputs",
        "log_likelihood",
        "observed_data",
        "constant_data",
    ]
    query = tree["posterior/attention.query"]
    assert query.dims == ("chain", "draw", "layer", "embed", "head", "head_dim")
    np.testing.assert_array_equal(query, posterior.draws["attention.query"])
    assert tree["sample_stats/diverging"].dtype == bool
    assert {"lp", "acceptance_rate", "step_size", "diverging", "energy", "n_steps", "tree_depth"} <= set(
        tree["sample_stats"]
    )
    for path, dims in {
        "log_likelihood/targets": ("chain", "draw", "row"),
        "posterior_predictive/targets": ("chain", "draw", "row"),
        "posterior_outputs/outputs": ("chain", "draw", "row", "output"),
        "posterior_outputs/targets.probabilities": ("chain", "draw", "row", "class"),
        "observed_data/targets": ("row",),
        "constant_data/inputs.tokens": ("row", "inputs.tokens_dim_1"),
    }.items():
        assert tree[path].dims == dims
    np.testing.assert_array_equal(tree["posterior_predictive/targets"], predictive.targets["targets"])
    np.testing.assert_array_equal(tree["observed_data/targets"], LABELS)
    np.testing.assert_array_equal(tree["constant_data/inputs.mask"], MASK)
    np.testing.assert_allclose(
        tree["log_likelihood/targets"], ptx.log_likelihood(posterior)["targets"], rtol=1e-5
    )


def test_constrained_values_and_plates_of_a_hand_written_model(schooled, trees):
    tree = trees["schools"]
    np.testing.assert_allclose(tree["posterior/tau"], np.exp(schooled[0].draws["tau"]), rtol=1e-5)
    for path in ("posterior/z", "posterior_outputs/theta", "log_likelihood/y", "posterior_predictive/y"):
        assert tree[path].dims == ("chain", "draw", "school")
    assert tree["observed_data/y"].dims == tree["constant_data/inputs"].dims == ("school",)
    theta = tree["posterior/mu"] + tree["posterior/tau"] * tree["posterior/z"]
    np.testing.assert_allclose(tree["posterior_outputs/theta"], theta, rtol=1e-4, atol=1e-4)


def test_attributes_say_what_ran(classified, trees):
    posterior, _ = classified
    for attributes in (trees["ours"].attrs, trees["ours"]["posterior"].attrs):
        assert eval_engine(attributes["engine"]) == posterior.engine
        assert attributes["gradient_evaluations"] == posterior.attributes["gradient_evaluations"]
        assert json.loads(attributes["seed"]) == [0, 0]
        assert json.loads(attributes["interrupted"]) is False
        assert json.loads(attributes["findings"]) == list(posterior.findings)
        assert attributes["seconds"] > 0
        assert {"ptx_version", "jax_version", "numpyro_version"} <= attributes.keys()
        assert (attributes["inference_library"], attributes["inference_library_version"]) == (
            "ptx",
            ptx.__version__,
        )
    assert trees["ours"]["posterior"].attrs["sample_dims"] == ["chain", "draw"]
    assert "sample_dims" not in trees["ours"]["observed_data"].attrs


def eval_engine(text):
    """The engine of a repr like NUTS(num_draws=60, ...)."""
    name, _, arguments = text.removesuffix(")").partition("(")
    pairs = (argument.split("=") for argument in arguments.split(", "))
    return getattr(inference, name)(**{key: json.loads(value.lower()) for key, value in pairs})


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
@pytest.mark.parametrize(("name", "row"), [("ours", "row"), ("schools", "school")])
def test_round_trip_through_netcdf_and_zarr(trees, name, row, tmp_path):
    import arviz_stats
    import xarray

    tree = trees[name]
    tree.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    tree.to_zarr(tmp_path / "tree.zarr", consolidated=False)
    with (
        xarray.open_datatree(tmp_path / "tree.nc", engine="h5netcdf") as netcdf,
        xarray.open_datatree(tmp_path / "tree.zarr", engine="zarr", consolidated=False) as zarr,
    ):
        for read in (netcdf, zarr):
            xarray.testing.assert_equal(read, tree)
            assert {path: dict(read[path].to_dataset().dtypes) for path in tree.groups} == {
                path: dict(tree[path].to_dataset().dtypes) for path in tree.groups
            }
            assert [dict(read[path].attrs) for path in tree.groups] == [
                dict(tree[path].attrs) for path in tree.groups
            ]
        assert arviz_stats.loo(netcdf).n_data_points == tree["log_likelihood"].to_dataset().sizes[row]


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
@pytest.mark.parametrize(("name", "variable", "num_rows"), [("ours", "head.bias", 16), ("schools", "mu", 8)])
def test_arviz_stats_run(trees, name, variable, num_rows):
    import arviz_stats

    tree = trees[name]
    estimate = arviz_stats.loo(tree, pointwise=True)
    assert estimate.n_data_points == num_rows
    assert np.isfinite(estimate.elpd)
    assert np.isfinite(np.asarray(arviz_stats.rhat(tree, var_names=[variable])[variable])).all()
    assert (np.asarray(arviz_stats.ess(tree, var_names=[variable])[variable]) > 0).all()
    summary = arviz_stats.summary(tree, var_names=[variable], round_to="none")
    np.testing.assert_allclose(
        summary["mean"].iloc[0],
        tree["posterior"][variable].mean(("chain", "draw")).values.ravel()[0],
        rtol=1e-4,
    )


PLOTS = {
    "plot_trace": "posterior",
    "plot_trace_dist": "posterior",
    "plot_dist": "posterior",
    "plot_rank": "posterior",
    "plot_rank_dist": "posterior",
    "plot_forest": "posterior",
    "plot_ridge": "posterior",
    "plot_ess": "posterior",
    "plot_ess_evolution": "posterior",
    "plot_mcse": "posterior",
    "plot_autocorr": "posterior",
    "plot_pair": "posterior",
    "plot_parallel": "posterior",
    "plot_energy": None,
    "plot_convergence_dist": "posterior",
    "plot_ppc_dist": None,
    "plot_ppc_pit": None,
    "plot_ppc_tstat": None,
    "plot_loo_pit": None,
}


@pytest.mark.filterwarnings("ignore:.*discrete", "ignore:.*looks? binary", "ignore:Estimated shape parameter")
@pytest.mark.parametrize("plot", PLOTS)
@pytest.mark.parametrize(("name", "variables"), [("ours", ["head.bias"]), ("schools", ["mu", "tau"])])
def test_arviz_plots_run(trees, name, variables, plot):
    import arviz_plots
    import matplotlib.pyplot as plt

    names = {"var_names": variables} if PLOTS[plot] else {}
    collection = getattr(arviz_plots, plot)(trees[name], backend="matplotlib", **names)
    assert len(plt.gcf().axes) > 0
    assert collection is not None
    plt.close("all")


def test_predictions_from_new_inputs_have_groups_of_their_own(schooled, classified):
    posterior, _ = classified
    inputs = {"tokens": TOKENS[:3], "mask": MASK[:3]}
    tree = ptx.to_datatree(posterior, predictive=ptx.predict(1, posterior, inputs), log_likelihood=False)
    assert tree["predictions/targets"].shape == (2, 60, 3)
    assert tree["predictions_outputs/outputs"].shape == (2, 60, 3, 2)
    np.testing.assert_array_equal(tree["predictions_constant_data/inputs.tokens"], TOKENS[:3])
    assert not {"posterior_predictive", "log_likelihood"} & set(tree.children)


def test_prior_groups():
    prior = quiet(3, schools, SCHOOLS, inference.Prior(num_draws=20, num_chains=2))
    alone = ptx.to_datatree(prior, predictive=ptx.predict(0, prior, SCHOOLS.inputs))
    assert list(alone.children) == [
        "prior",
        "prior_predictive",
        "prior_outputs",
        "observed_data",
        "constant_data",
    ]
    assert alone["prior/z"].dims == ("chain", "draw", "school")
    posterior = quiet(0, schools, SCHOOLS, inference.HMC(num_draws=5, num_warmup=5, num_chains=2))
    tree = ptx.to_datatree(posterior, prior=prior, prior_predictive=ptx.predict(0, prior, SCHOOLS.inputs))
    assert {"posterior", "prior", "prior_predictive", "log_likelihood"} <= set(tree.children)
    np.testing.assert_array_equal(tree["prior/mu"], prior.draws["mu"])
    for wrong, message in (
        ({"prior": posterior}, "got HMC beside HMC"),
        ({"prior_predictive": alone}, "as `prior`"),
    ):
        with pytest.raises(ValueError, match=message):
            ptx.to_datatree(posterior, **wrong)
    with pytest.raises(ValueError, match="got Prior beside Prior"):
        ptx.to_datatree(prior, prior=prior)


@dataclass(frozen=True)
class Awkward:
    """Names that xarray or netCDF trip over: with "/", like a dimension, like a variable; an axis of another length."""

    dims = {"group": ("group",), "e": ("group", "item"), "f": ("item",), "g": ("item", "item")}  # noqa: RUF012

    def __call__(self, inputs, targets=None):
        shapes = {"block/0": (), "draw": (), "group": (3,), "e": (3, 2), "f": (4,), "g": (2, 2)}
        sites = [
            numpyro.sample(name, dist.Normal(0, 1).expand(shape).to_event()) for name, shape in shapes.items()
        ]
        with numpyro.plate("chain", 4):
            sites.append(numpyro.sample("d", dist.Normal(0, 1)))
        mean = sum(site.sum() for site in sites)
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Normal(mean + inputs, 1.0), obs=targets)


def test_awkward_names_are_kept_apart(tmp_path):
    import xarray

    posterior = quiet(0, Awkward(), (np.zeros(2), np.zeros(2)), inference.Prior(num_draws=5, num_chains=2))
    assert ptx.log_likelihood(posterior)["y"].shape == (2, 5, 2)
    tree = ptx.to_datatree(posterior)
    assert {name: array.dims[2:] for name, array in tree["prior"].items()} == {
        "block.0": (),
        "draw_": (),
        "group": ("group_dim_0",),
        "e": ("e_dim_0", "item"),
        "f": ("f_dim_0",),
        "g": ("item", "g_dim_1"),
        "d": ("d_dim_0",),
    }
    for old, new in {"block/0": "block.0", "draw": "draw_", "group": "group"}.items():
        np.testing.assert_array_equal(tree["prior"][new], posterior.draws[old])
    assert json.loads(tree["prior"].attrs["renamed"]) == {"block/0": "block.0", "draw": "draw_"}
    tree.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    with xarray.open_datatree(tmp_path / "tree.nc", engine="h5netcdf") as read:
        xarray.testing.assert_equal(read, tree)


def test_names_that_collide_are_refused():
    def colliding(inputs, targets=None):
        a = numpyro.sample("a/b", dist.Normal(0, 1))
        b = numpyro.sample("a.b", dist.Normal(0, 1))
        with numpyro.plate("rows", inputs.shape[0]):
            numpyro.sample("y", dist.Normal(a + b + inputs, 1.0), obs=targets)

    posterior = quiet(0, colliding, (np.zeros(2), np.zeros(2)), inference.Prior(num_draws=3))
    with pytest.raises(ValueError, match=r"sites 'a.b' and 'a/b' would both be exported as 'a.b'"):
        ptx.to_datatree(posterior)


def square(inputs, targets=None):
    """A site of shape (3, 5), for 3 chains of 5 draws."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([3, 5]).to_event(2))
    with numpyro.plate("rows", inputs.shape[0]):
        numpyro.sample("y", dist.Normal((w * inputs).sum((1, 2)), 1.0), obs=targets)


def test_chains_and_draws_cannot_be_confused():
    posterior = quiet(
        0, square, (np.ones((4, 3, 5)), np.zeros(4)), inference.Prior(num_draws=5, num_chains=3)
    )
    tree = ptx.to_datatree(posterior, coords={"w_dim_0": list("abc")})
    assert dict(tree["prior/w"].sizes) == {"chain": 3, "draw": 5, "w_dim_0": 3, "w_dim_1": 5}
    np.testing.assert_array_equal(
        tree["prior/w"].sel(chain=2, draw=4, w_dim_0="b"), posterior.draws["w"][2, 4, 1]
    )
    turned = posterior.replace(draws={"w": posterior.draws["w"].swapaxes(0, 1)})
    with pytest.raises(ValueError, match=r"site 'w' have shape \(5, 3, 3, 5\); expected \(3, 3, 3, 5\)"):
        ptx.to_datatree(turned)


@pytest.mark.parametrize(
    ("coords", "message"),
    [
        ({"school": [1, 2]}, "'school' has 2 labels, and that axis of '[a-z]+' has length 8"),
        ({"pupil": [1]}, "no dimension is called"),
    ],
)
def test_coords_must_fit(schooled, coords, message):
    with pytest.raises(ValueError, match=message):
        ptx.to_datatree(schooled[0], coords=coords)


def test_coords_label_a_dimension(schooled):
    tree = ptx.to_datatree(schooled[0], coords={"school": list("ABCDEFGH")})
    assert float(tree["observed_data/y"].sel(school="C")) == -3


def test_log_likelihood_is_taken_refused_or_left_out(schooled):
    posterior, _ = schooled
    given = {"y": np.zeros((2, 60, 8))}
    np.testing.assert_array_equal(ptx.to_datatree(posterior, log_likelihood=given)["log_likelihood/y"], 0)
    with pytest.raises(ValueError, match=r"'y' has shape \(60, 2, 8\)"):
        ptx.to_datatree(posterior, log_likelihood={"y": np.zeros((60, 2, 8))})

    def whole(inputs, targets=None):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        numpyro.sample(
            "y",
            dist.MultivariateNormal(mean * jnp.ones(inputs.shape[0]), jnp.eye(inputs.shape[0])),
            obs=targets,
        )

    posterior = quiet(
        0, whole, (np.zeros(3), np.zeros(3)), inference.HMC(num_draws=3, num_warmup=2, num_chains=1)
    )
    assert "log_likelihood" not in ptx.to_datatree(posterior).children
    with pytest.raises(ValueError, match="site 'y': its log density does not factor"):
        ptx.to_datatree(posterior, log_likelihood=True)


def test_narrow_floats_become_float32():
    posterior = quiet(0, schools, SCHOOLS, inference.Prior(num_draws=3))
    narrow = {name: jnp.asarray(values, jnp.bfloat16) for name, values in posterior.draws.items()}
    tree = ptx.to_datatree(posterior.replace(statistics={"lp": jnp.zeros((1, 3), jnp.bfloat16)}))
    assert tree["sample_stats_prior/lp"].dtype == np.float32
    assert narrow["mu"].dtype == jnp.bfloat16


def test_attention_rows_of_all_layers_are_one_variable():
    network = models.Transformer(
        num_features=2,
        max_length=2,
        num_layers=2,
        num_heads=1,
        width=2,
        num_outputs=2,
        attention="dirichlet",
    )
    inputs = RNG.normal(size=(3, 2, 2))
    model = models.bayesian(network, priors.normal(), likelihoods.categorical)
    prior = quiet(0, model, (inputs, np.array([0, 1, 1])), inference.Prior(num_draws=4))
    variable = ptx.to_datatree(prior, log_likelihood=False)["prior"]["attention.probs"]
    assert variable.dims == ("chain", "draw", "row", "layer", "head", "query", "key")
    draws = prior.constrained()
    for layer in range(2):
        np.testing.assert_array_equal(variable[:, :, :, layer], draws[f"attention.probs.{layer}"])


def test_layers_are_stacked_by_their_number():
    names = [f"attention.probs.{layer}" for layer in range(11)]
    dims = (("attention.probs", ("row", "layer", "head", "query", "key")),)
    target = SimpleNamespace(sites=[SimpleNamespace(name=name) for name in sorted(names)], dims=dims)
    values = {name: np.full((1, 2, 3, 1, 2, 2), float(layer)) for layer, name in enumerate(names)}
    stacked = stacked_layers(target, values)["attention.probs"]
    np.testing.assert_array_equal(stacked[0, 0, 0, :, 0, 0, 0], np.arange(11))


def test_numbered_latents_of_a_model_without_layers_stay_apart():
    def model(inputs, targets=None):
        with numpyro.plate("rows", inputs.shape[0]):
            zs = [
                numpyro.sample(f"z.{k}", dist.Normal(0, jnp.ones(k + 1)).to_event(1), infer={"amortised": q})
                for k, q in enumerate([dist.Normal(0, jnp.ones(n)).to_event(1) for n in (1, 2)])
            ]
            numpyro.sample("y", dist.Normal(sum(z.sum(-1) for z in zs), 1), obs=targets)

    prior = quiet(0, model, (np.zeros(3), np.zeros(3)), inference.Prior(num_draws=4))
    assert {"z.0", "z.1"} <= set(ptx.to_datatree(prior, log_likelihood=False)["prior"].data_vars)


APART = {  # sites and their shapes, dims of `w`
    "a latent of that name": ({"w": (2, 2), "w.0": (3,)}, ("layer", "unit")),
    "other shapes": ({"w.0": (2,), "w.1": (3,)}, ("layer", "unit")),
    "more dims than axes": ({"w.0": (), "w.1": ()}, ("row", "unit", "layer")),
    "a number left out": ({"w.0": (2,), "w.3": (2,)}, ("layer", "unit")),
    "another name beside": ({"w.0": (2,), "w.out": (2,)}, ("layer", "unit")),
    "a number in other digits": ({"w.0": (2,), "w.\N{SUPERSCRIPT TWO}": (2,)}, ("layer", "unit")),
}


@pytest.mark.parametrize("sites", APART)
def test_latents_that_are_no_layers_of_one_stay_apart(sites):
    shapes, dims = APART[sites]
    target = SimpleNamespace(sites=[SimpleNamespace(name=name) for name in shapes], dims=(("w", dims),))
    values = {name: RNG.normal(size=(1, 5, *shape)) for name, shape in shapes.items()}
    stacked = stacked_layers(target, values)
    assert set(stacked) == set(values)
    assert all(stacked[name] is values[name] for name in values)

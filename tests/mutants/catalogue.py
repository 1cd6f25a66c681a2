"""All mutants. Each check takes those that it must notice."""

from tests.mutants import consuming, delivering, growing, journal, publishing, rights, sagas
from tests.mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *journal.MUTANTS,
    *consuming.MUTANTS,
    *delivering.MUTANTS,
    *growing.MUTANTS,
    *publishing.MUTANTS,
    *sagas.MUTANTS,
    *rights.MUTANTS,
)
FOR_TESTS = tuple(mutant for mutant in MUTANTS if mutant.tests)
FOR_SIMULATION = tuple(mutant for mutant in MUTANTS if mutant.simulated)
FOR_CRASH_POINTS = tuple(mutant for mutant in MUTANTS if mutant.crash_point)

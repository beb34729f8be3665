import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.AbstractKafkaConfig;

/** The limits that a broker sets to its configurations of share groups: name and validator, a line each. */
public final class KafkaLimits {
    public static void main(String[] arguments) {
        new TreeMap<>(AbstractKafkaConfig.CONFIG_DEF.configKeys()).forEach((name, key) -> {
            if (name.startsWith("group.share.") || name.startsWith("share.coordinator.")) {
                System.out.println(name + " " + key.validator);
            }
        });
    }
}
